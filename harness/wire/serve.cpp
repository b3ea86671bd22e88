// The lines of the engine's end of the wire (docs/engine-protocol.md, sections 1 and 2).
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "harness/base/write_file.h"
#include "harness/wire/engine_server.h"
#include "harness/wire/tensor_file.h"

namespace lockstep::wire {
namespace {

constexpr std::size_t kMostOfALine = 1 << 20;

class Lines {
 public:
  explicit Lines(int descriptor) : descriptor_(descriptor) {}

  // Absent at the end of the file.
  std::optional<std::string> next() {
    for (;;) {
      const std::size_t end = rest_.find('\n');
      if (end != std::string::npos) {
        std::string line = rest_.substr(0, end);
        rest_.erase(0, end + 1);
        return line;
      }
      if (rest_.size() >= kMostOfALine) throw WireError("a request of more than 1 MiB");
      std::array<char, 65536> bytes;
      const ssize_t count = ::read(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0)
        throw WireError(std::string("requests cannot be read: ") + std::strerror(errno));
      if (count == 0) return {};
      rest_.append(bytes.data(), bytes.data() + count);
    }
  }

 private:
  int descriptor_;
  std::string rest_;
};

void write_line(int descriptor, const boost::json::object& message) {
  const std::string line = boost::json::serialize(message) + "\n";
  if (line.size() > kMostOfALine) throw WireError("a reply of more than 1 MiB");
  if (!write_all(descriptor, line))
    throw WireError(std::string("replies cannot be written: ") + std::strerror(errno));
}

// While it lives, the process ends when nobody holds the other end any more, whatever it is doing.
class EndsWithTheOtherSide {
 public:
  explicit EndsWithTheOtherSide(int in) : wake_(::eventfd(0, EFD_CLOEXEC)) {
    if (wake_ < 0) throw WireError(std::string("no eventfd: ") + std::strerror(errno));
    thread_ = std::thread([in, wake = wake_] {
      std::array<pollfd, 2> ends{
          {{.fd = in, .events = 0, .revents = 0}, {.fd = wake, .events = POLLIN, .revents = 0}}};
      while (::poll(ends.data(), ends.size(), -1) < 0) {
      }
      if (ends[1].revents == 0) ::_exit(0);
    });
  }
  ~EndsWithTheOtherSide() {
    static_cast<void>(::eventfd_write(wake_, 1));
    thread_.join();
    ::close(wake_);
  }
  EndsWithTheOtherSide(const EndsWithTheOtherSide&) = delete;
  EndsWithTheOtherSide& operator=(const EndsWithTheOtherSide&) = delete;

 private:
  int wake_;
  std::thread thread_;
};

}  // namespace

void serve(EngineServer& server, int in, int out) {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int descriptor : {in, out}) {
    if (::fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0)
      throw WireError("LOCKSTEP_ENGINE_FDS names descriptors that are not open");
  }
  Lines lines(in);
  while (!server.said_bye()) {
    const std::optional<std::string> line = lines.next();
    if (!line) return;
    boost::system::error_code unreadable;
    const boost::json::value request = boost::json::parse(*line, unreadable);
    if (unreadable || !request.is_object()) {
      write_line(out, {{"id", 0}, {"failed", "protocol"}, {"what", "no JSON object"}});
      continue;
    }
    const EndsWithTheOtherSide watched(in);
    const auto send = [out](const boost::json::object& part) { write_line(out, part); };
    write_line(out, server.answer(request.as_object(), send));
  }
}

}  // namespace lockstep::wire
