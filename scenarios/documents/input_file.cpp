#include "scenarios/documents/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep {
namespace {

constexpr long kFilesOfTheKernel = 0x9fa0;  // PROC_SUPER_MAGIC.

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)), piece_(1 << 16, '\0') {
  // Without O_NONBLOCK a pipe that took the file's place would hold us.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) throw Unreadable{{path_, 0, "may not be opened"}};
  struct stat status {};
  struct statfs system {};
  const bool known = ::fstat(descriptor_, &status) == 0 && ::fstatfs(descriptor_, &system) == 0;
  const bool regular =
      known && S_ISREG(status.st_mode) && static_cast<long>(system.f_type) != kFilesOfTheKernel;
  if (regular) return;
  ::close(descriptor_);
  throw Unreadable{{path_, 0, "is no regular file on a disk"}};
}

InputFile::~InputFile() { ::close(descriptor_); }

std::string_view InputFile::next() {
  ssize_t got;
  do got = ::read(descriptor_, piece_.data(), piece_.size());
  while (got < 0 && errno == EINTR);
  if (got < 0) throw Unreadable{{path_, 0, "cannot be read to its end"}};
  const std::string_view bytes(piece_.data(), static_cast<std::size_t>(got));
  sum_.add(bytes);
  return bytes;
}

}  // namespace lockstep
