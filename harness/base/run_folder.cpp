#include "harness/base/run_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

int opened(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Processes that were killed left their folders, whose locks nobody holds.
void remove_those_left(const std::string& start) {
  for (const auto& entry : fs::directory_iterator(fs::path(start).parent_path())) {
    const std::string path = entry.path().string();
    const int file = path.starts_with(start) ? opened(path) : -1;
    if (file < 0) continue;
    struct stat status {};
    std::error_code ignored;
    if (::fstat(file, &status) == 0 && status.st_uid == ::geteuid() &&
        ::flock(file, LOCK_EX | LOCK_NB) == 0)
      fs::remove_all(path, ignored);
    ::close(file);
  }
}

}  // namespace

RunFolder::RunFolder() {
  const std::string start =
      (fs::temp_directory_path() / ("lockstep-run-" + std::to_string(::geteuid()) + "-")).string();
  remove_those_left(start);
  for (;;) {
    path_ = start + "XXXXXX";
    if (!::mkdtemp(path_.data()))
      throw WorldError(path_ + ": cannot make this folder: " + std::strerror(errno));
    lock_ = opened(path_);
    ::flock(lock_, LOCK_EX);
    if (fs::exists(path_)) return;
    ::close(lock_);  // Another process took it for one that was left, before it was locked.
  }
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
}

}  // namespace lockstep
