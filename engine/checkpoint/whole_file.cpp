#include "engine/checkpoint/whole_file.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
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

std::string temporary_of(const std::string& path) {
  return path + std::string(kInfix) + std::to_string(::getpid());
}

// Unlinked unless it was renamed.
class Temporary {
 public:
  explicit Temporary(const std::string& path) : path_(path), name_(temporary_of(path)) {
    // Neither a link nor a file that somebody has put there is written through.
    ::unlink(name_.c_str());
    descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(path_, "create");
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    ::close(descriptor_);
    if (!name_.empty()) ::unlink(name_.c_str());
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
    name_.clear();
  }

 private:
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

// The writer of a temporary; 0 for a name that is not one.
pid_t writer_of(std::string_view name) {
  const std::size_t infix = name.rfind(kInfix);
  if (infix == std::string_view::npos) return 0;
  name.remove_prefix(infix + kInfix.size());
  pid_t writer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), writer);
  return error == std::errc() && end == name.data() + name.size() && writer > 0 ? writer : 0;
}

bool is_dead(pid_t process) { return ::kill(process, 0) != 0 && errno == ESRCH; }

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
  if (ours) ::unlink(temporary_of(path).c_str());
}

void remove_leftovers(const std::string& folder,
                      const std::function<bool(const std::string& name)>& is_ours) {
  std::error_code ignored;  // A file that cannot be listed or removed stays and does no harm.
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const pid_t writer = writer_of(name);
    if (writer == 0 || !is_dead(writer) || !is_ours(name.substr(0, name.rfind(kInfix)))) continue;
    if (entry.symlink_status(ignored).type() == fs::file_type::regular)
      fs::remove(entry.path(), ignored);
  }
}

}  // namespace lockstep
