#include "harness/run/checkpoint_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/base/write_file.h"

namespace lockstep {
namespace {

// A lock file says this, so that no file of somebody else is taken for one.
constexpr std::string_view kWords = "A run of lockstep saves its checkpoint here.\n";

bool has_our_words(int file) {
  std::string words(kWords.size() + 1, '\0');
  const ssize_t count = ::pread(file, words.data(), words.size(), 0);
  // Nothing is in it between its making and its first words.
  return count == 0 || (count > 0 && std::string_view(words).substr(0, count) == kWords);
}

}  // namespace

CheckpointLock::CheckpointLock(const std::string& checkpoint)
    : path_(checkpoint + ".lock"), maker_(::getpid()) {
  while (!is_held()) {  // Again if the run before removed it meanwhile.
    ::close(descriptor_);
  }
}

// Whether the lock file is still at its place: another run, or a report of that name, may be there.
bool CheckpointLock::is_in_place() const {
  struct stat own {
  }, there{};
  return ::fstat(descriptor_, &own) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         own.st_ino == there.st_ino && own.st_dev == there.st_dev;
}

bool CheckpointLock::is_held() {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  descriptor_ = ::open(path_.c_str(), kFlags, 0600);
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0)
    throw WorldError(path_ + ": cannot be made: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode) || !has_our_words(descriptor_)) {
    ::close(descriptor_);
    throw WorldError(path_ + " is there, and is no lock of lockstep: it stays");
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    throw RequestError(path_.substr(0, path_.size() - 5) +
                       ": another run saves its checkpoint there; wait for it, or name another "
                       "--checkpoint");
  }  // Where a file system has no locks, nothing is held.
  if (!is_in_place()) return false;
  if (::ftruncate(descriptor_, 0) == 0 && write_all(descriptor_, kWords)) return true;
  const std::string why = std::strerror(errno);
  remove();
  ::close(descriptor_);
  throw WorldError(path_ + ": cannot be written: " + why);
}

void CheckpointLock::remove() {
  if (::getpid() == maker_ && is_in_place()) ::unlink(path_.c_str());
}

CheckpointLock::~CheckpointLock() {
  remove();
  ::close(descriptor_);
}

}  // namespace lockstep
