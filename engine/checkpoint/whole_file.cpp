#include "engine/checkpoint/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kInfix = ".tmp.";

[[noreturn]] void fail(const std::string& path, const char* what, int reason = errno) {
  throw std::runtime_error(path + ": cannot " + what + ": " + std::strerror(reason));
}

std::string folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// The temporaries that this process is writing.
struct Writing {
  std::mutex mutex;
  std::set<std::string> names;
};
Writing& writing() {
  static Writing all;
  return all;
}

// PATH.tmp.PID.RANDOM: nobody can be there first, and no file of a user has such a name.
std::string new_temporary_of(const std::string& path) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != ssize_t{sizeof random}) fail(path, "create");
  char end[20];
  std::snprintf(end, sizeof end, ".%016llx", static_cast<unsigned long long>(random));
  return path + std::string(kInfix) + std::to_string(::getpid()) + end;
}

// The part of a temporary's name that is the file's own; "" for a name that is not one.
std::string_view file_of_temporary(std::string_view name) {
  const std::size_t infix = name.rfind(kInfix);
  if (infix == std::string_view::npos) return {};
  const std::string_view end = name.substr(infix + kInfix.size());
  const std::size_t digits = end.find_first_not_of("0123456789");
  const bool is_ours = digits != 0 && digits != std::string_view::npos && end[digits] == '.' &&
                       end.size() == digits + 17 &&
                       end.find_first_not_of("0123456789abcdef", digits + 1) == end.npos;
  return is_ours ? name.substr(0, infix) : std::string_view();
}

// Unlinked unless it was renamed. Its lock tells other processes, in other containers too, that its
// writer lives.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : path_(path) {
    struct stat status {};
    do {  // Again if somebody took it for a leftover before it was locked.
      if (descriptor_ >= 0) ::close(descriptor_);
      forget();
      name_ = new_temporary_of(path_);
      remember();
      // Neither a link nor a file that somebody has put there is written through.
      descriptor_ =
          ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
      if (descriptor_ < 0) {
        const int reason = errno;
        forget();
        fail(path_, "create", reason);
      }
      ::flock(descriptor_, LOCK_EX);  // Where a file system has no locks, there are no leftovers.
    } while (::fstat(descriptor_, &status) == 0 && status.st_nlink == 0);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    ::close(descriptor_);
    if (!name_.empty()) ::unlink(name_.c_str());
    forget();
  }
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(descriptor_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail(path_, "write");
      bytes.remove_prefix(done);
    }
  }
  void rename() {
    if (::fsync(descriptor_) != 0 && errno != EINVAL) fail(path_, "sync");
    if (::rename(name_.c_str(), path_.c_str()) != 0) fail(path_, "rename");
    forget();
    name_.clear();
  }

 private:
  void remember() const {
    const std::lock_guard lock(writing().mutex);
    writing().names.insert(name_);
  }
  void forget() const {
    const std::lock_guard lock(writing().mutex);
    writing().names.erase(name_);
  }

  std::string path_, name_;
  int descriptor_ = -1;
};

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // The rename is done; a folder that cannot be opened cannot be synced.
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

// Removes it if it is a file of this user that no process is writing.
void remove_if_left(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  struct stat status {};
  const bool is_left = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                       status.st_uid == ::geteuid() && ::flock(file, LOCK_EX | LOCK_NB) == 0;
  if (is_left) ::unlink(path.c_str());
  ::close(file);
}

}  // namespace

void write_whole_file(const std::string& path, std::initializer_list<std::string_view> parts) {
  const std::string folder = folder_of(path);
  remove_temporaries_of(path, false);
  Temporary temporary(path);
  for (const std::string_view part : parts) temporary.write(part);
  temporary.rename();
  sync_folder(folder);
}

void remove_temporaries_of(const std::string& path, bool ours) {
  const std::string name = fs::path(path).filename().string();
  remove_leftovers(folder_of(path), [&](const std::string& one) { return one == name; });
  if (!ours) return;
  const std::lock_guard lock(writing().mutex);
  for (const std::string& one : writing().names) {
    if (file_of_temporary(one) == path) ::unlink(one.c_str());
  }
}

void remove_leftovers(const std::string& folder,
                      const std::function<bool(const std::string& name)>& is_ours) {
  std::error_code ignored;  // A file that cannot be listed or removed stays and does no harm.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const std::string_view of = file_of_temporary(name);
    if (!of.empty() && is_ours(std::string(of))) remove_if_left(entry.path().string());
  }
}

}  // namespace lockstep
