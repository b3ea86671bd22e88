#include "engine/rendezvous/shared_segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/rendezvous/mac.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kMagic = 0x4c53'736d;  // Identifies this layout.
constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

struct Header {
  std::uint32_t magic = 0, ranks = 0;
};

[[noreturn]] void fail(const std::string& path) {
  throw std::runtime_error(path + ": " + std::strerror(errno));
}

class File {
 public:
  explicit File(const std::string& path) : number_(::open(path.c_str(), kFlags)) {}
  File(const File&) = delete;
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

// Why no process of this user can have made it as a segment; "" if one can.
std::string fault_of(const struct stat& status) {
  if (S_ISLNK(status.st_mode)) return "is a link";
  if (!S_ISREG(status.st_mode)) return "is no regular file";
  if (status.st_uid != ::geteuid()) return "belongs to another user";
  if ((status.st_mode & 077) != 0) return "is open to other users";
  return "";
}

// A file that is being made has no header yet.
Header header_of(int file) {
  Header header;
  const ssize_t count = ::pread(file, &header, sizeof header, 0);
  return count == static_cast<ssize_t>(sizeof header) ? header : Header{};
}

bool is_segment(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && fault_of(status).empty() && header_of(file).magic == kMagic;
}

std::vector<std::string> paths_that_begin_with(const std::string& start) {
  std::vector<std::string> paths;
  const auto folder = std::filesystem::path(start).parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().starts_with(start)) paths.push_back(entry.path().string());
  }
  return paths;
}

std::string random_end() {
  const Digest digest = random_digest();
  std::string text = ".";
  for (int i = 0; i < 8; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof byte, "%02x", static_cast<unsigned>(digest[i]));
    text += byte;
  }
  return text;
}
bool is_random_end(std::string_view end) {
  return end.size() == 17 && end.front() == '.' &&
         end.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
}

// A maker that was killed early has left a file without a header.
bool may_be_left(int file, const std::string& path) {
  struct stat status {};
  if (::fstat(file, &status) != 0 || !fault_of(status).empty()) return false;
  const std::uint32_t magic = header_of(file).magic;
  return magic == kMagic || (magic == 0 && path.size() > 17 &&
                             is_random_end(std::string_view(path).substr(path.size() - 17)));
}

// Nobody holds the lock of a segment whose maker was killed.
void remove_those_left(const std::string& family) {
  for (const std::string& path : paths_that_begin_with(family)) {
    const File file(path);
    if (file.number() >= 0 && may_be_left(file.number(), path) &&
        ::flock(file.number(), LOCK_EX | LOCK_NB) == 0)
      ::unlink(path.c_str());
  }
}

void remove_earlier(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  const File file(path);
  if (file.number() < 0 || !is_segment(file.number()))
    throw PlaceIsTaken(path + " is there, and is no segment of this user's lockstep: it stays");
  ::unlink(path.c_str());
}

// The size and the header come last: until then others wait.
bool fill(int file, int ranks, std::size_t bytes) {
  const Header header{kMagic, static_cast<std::uint32_t>(ranks)};
  return ::flock(file, LOCK_EX) == 0 && ::ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
         ::pwrite(file, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header);
}

bool open_one(const std::string& path, int ranks, std::size_t bytes,
              const std::function<bool(void*)>& join) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 && errno == ENOENT) return false;
  const auto require_ours = [&] {
    if (const std::string fault = fault_of(status); !fault.empty())
      throw std::runtime_error(path + " " + fault);
  };
  require_ours();
  const File file(path);
  if (file.number() < 0 && errno == ENOENT) return false;
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) fail(path);
  require_ours();  // It may be another file than before.
  const Header header = header_of(file.number());
  if (header.magic == 0 && (status.st_size == 0 || status.st_size >= off_t{sizeof header}))
    return false;
  if (header.magic != kMagic) throw std::runtime_error(path + ": not a segment of this version");
  if (header.ranks != static_cast<std::uint32_t>(ranks)) return false;
  if (status.st_size != static_cast<off_t>(bytes)) {
    throw std::runtime_error(path + " has " + std::to_string(status.st_size) +
                             " bytes, and a segment of " + std::to_string(ranks) + " ranks has " +
                             std::to_string(bytes));
  }
  if (::flock(file.number(), LOCK_SH | LOCK_NB) == 0) return false;  // Its maker is gone.
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED) fail(path);
  if (join(memory)) return true;
  ::munmap(memory, bytes);
  return false;
}

}  // namespace

SharedPlace place_of_job(const std::string& job) {
  std::string name = job;
  std::replace(name.begin(), name.end(), '/', '-');
  const std::string family =
      (std::filesystem::temp_directory_path() / ("lockstep-" + std::to_string(::geteuid()) + "-"))
          .string();
  return {.path = family + name, .family = family};
}

SharedSegment::SharedSegment(const SharedPlace& place, int ranks, std::size_t bytes)
    : path_(place.path + (place.family.empty() ? "" : random_end())) {
  place.family.empty() ? remove_earlier(path_) : remove_those_left(place.family);
  struct stat status {};
  do {  // Again if another run took it for one that was left, before it was locked.
    if (file_ >= 0) ::close(file_);
    file_ = ::open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0600);
    if (file_ < 0) fail(path_);
    if (fill(file_, ranks, bytes)) continue;
    const int error = errno;
    ::unlink(path_.c_str());
    ::close(file_);
    errno = error;
    fail(path_);
  } while (::fstat(file_, &status) == 0 && status.st_nlink == 0);
}

SharedSegment::SharedSegment(SharedSegment&& from) noexcept
    : path_(std::move(from.path_)), file_(std::exchange(from.file_, -1)) {}

// Another run may have made its own segment at the path since.
SharedSegment::~SharedSegment() {
  if (file_ < 0) return;
  struct stat own {
  }, there{};
  if (::fstat(file_, &own) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
      own.st_dev == there.st_dev && own.st_ino == there.st_ino)
    ::unlink(path_.c_str());
  ::close(file_);
}

bool open_segment(const SharedPlace& place, int ranks, std::size_t bytes,
                  const std::function<bool(void* memory)>& join) {
  if (place.family.empty()) return open_one(place.path, ranks, bytes, join);
  for (const std::string& path : paths_that_begin_with(place.path + ".")) {
    if (!is_random_end(std::string_view(path).substr(place.path.size()))) continue;
    try {
      if (open_one(path, ranks, bytes, join)) return true;
    } catch (const std::runtime_error&) {
      continue;  // Not one of this user's.
    }
  }
  return false;
}

}  // namespace lockstep
