#include "harness/run/meeting_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/base/errors.h"

namespace lockstep {
namespace {

constexpr const char* kVariable = "LOCKSTEP_MEETING_KEY";
constexpr const char* kFile = "LOCKSTEP_MEETING_KEY_FILE";
constexpr std::size_t kLeast = 32;  // Characters; `openssl rand -hex 16` prints as many.
constexpr std::size_t kMost = 4096;

// Returns what is wrong with the file that has this status, or "".
std::string fault_of(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return "is no regular file";
  if (status.st_uid != ::geteuid()) return "belongs to another user";
  if ((status.st_mode & 077) != 0) return "may be read by others: chmod 600";
  if (status.st_size > static_cast<off_t>(kMost)) return "is too long for a key";
  return "";
}

std::string text_of_file(const std::string& path) {
  const std::string place = std::string(kFile) + ": " + path;
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // It may be a FIFO.
  if (file < 0) throw RequestError(place + ": " + std::strerror(errno));
  struct stat status {};
  std::string text(kMost, '\0');
  std::string fault = ::fstat(file, &status) == 0 ? fault_of(status) : std::strerror(errno);
  const ssize_t count = fault.empty() ? ::read(file, text.data(), text.size()) : 0;
  if (count < 0) fault = std::strerror(errno);
  ::close(file);
  if (!fault.empty()) throw RequestError(place + " " + fault);
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace

std::string meeting_key(const Environment& environment) {
  const char* const given = environment(kVariable);
  const char* const file = environment(kFile);
  if (!given && !file) return "";
  if (given && file)
    throw RequestError(std::string(kVariable) + " and " + kFile +
                       " are set: one of them is enough");
  std::string key = given ? given : text_of_file(file);
  key.erase(key.find_last_not_of(" \t\r\n") + 1);
  if (key.size() < kLeast) {
    throw RequestError(std::string(given ? kVariable : kFile) + " holds a key of " +
                       std::to_string(key.size()) + " characters, and " + std::to_string(kLeast) +
                       " are the least: openssl rand -hex 32");
  }
  return key;
}

}  // namespace lockstep
