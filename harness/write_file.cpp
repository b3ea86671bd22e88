#include "harness/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/exit_status.h"

namespace lockstep {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw WorldError(path + ": cannot " + what + ": " + std::strerror(errno));
}

// Owns the temporary until it is renamed.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : path_(path + ".XXXXXX") {
    descriptor_ = ::mkstemp(path_.data());
    if (descriptor_ < 0) fail(path, "create");
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(descriptor_, 0666 & ~mask);  // mkstemp gives 0600; a report is for everybody the umask allows.
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  void write(const std::string& path, std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(descriptor_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail(path, "write");
      text.remove_prefix(static_cast<std::size_t>(done));
    }
    if (::fsync(descriptor_) != 0 && errno != EINVAL) fail(path, "sync");
  }
  void rename(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) fail(path, "rename");
    path_.clear();
  }

 private:
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

void write_file(const std::string& path, std::string_view text) {
  struct stat status {};
  // A device or a pipe (/dev/stdout) cannot be replaced, only written.
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (!file) fail(path, "open");
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (std::fclose(file) != 0 || !written) fail(path, "write");
    return;
  }
  Temporary temporary(path);
  temporary.write(path, text);
  temporary.rename(path);
}

}  // namespace lockstep
