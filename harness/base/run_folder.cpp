#include "harness/base/run_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "lockstep-run-";

int open_locked(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || (::fstat(descriptor, &status) == 0 && status.st_uid == ::geteuid() &&
                         ::flock(descriptor, LOCK_EX | LOCK_NB) == 0))
    return descriptor;
  ::close(descriptor);
  return -1;
}

// The process that made the folder; 0 for a name that is not one of ours.
pid_t maker_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  const char* const end = name.data() + name.size();
  pid_t maker = 0;
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, maker);
  return error == std::errc() && rest != end && *rest == '-' ? maker : 0;
}

// The lock tells what the number does not: a container that shares the folder has processes of the
// same numbers.
void remove_unlocked(const std::function<bool(pid_t)>& is_dead) {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::temp_directory_path(ignored), ignored)) {
    const pid_t maker = maker_of(entry.path().filename().string());
    if (maker <= 0 || !is_dead(maker)) continue;
    const int lock = open_locked(entry.path().string());
    if (lock < 0) continue;
    fs::remove_all(entry.path(), ignored);
    ::close(lock);
  }
}

}  // namespace

RunFolder::RunFolder() {
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  if (error) throw WorldError("the temporary folder (TMPDIR) cannot be used: " + error.message());
  path_ = (temporary / (std::string(kPrefix) + std::to_string(::getpid()) + "-XXXXXX")).string();
  remove_run_folders_left();
  if (!::mkdtemp(path_.data()))
    throw WorldError(path_ + ": cannot make this folder: " + std::strerror(errno));
  removed_.emplace(path_);
  lock_ = open_locked(path_);  // Where there are no locks, the number alone must do.
}

RunFolder::~RunFolder() {
  removed_.reset();
  if (lock_ >= 0) ::close(lock_);
}

void remove_run_folders_left() {
  remove_unlocked([](pid_t maker) { return ::kill(maker, 0) != 0 && errno == ESRCH; });
}

void remove_run_folders_of(pid_t process) {
  remove_unlocked([process](pid_t maker) { return maker == process; });
}

}  // namespace lockstep
