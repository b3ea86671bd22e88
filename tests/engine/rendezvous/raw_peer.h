// A peer that speaks the frames of a TcpStore by hand, over a plain socket: it may say anything.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/rendezvous/connection.h"

namespace lockstep::test {

using Bytes = std::vector<std::byte>;

// A frame as another program sees it: its first bytes, of which some are read here, and its body.
struct RawFrame {
  static constexpr std::size_t kHead = 96;
  Bytes head, body;
  Message::Kind kind() const { return static_cast<Message::Kind>(number<std::uint32_t>(4)); }
  template <class T>
  T number(std::size_t offset) const {
    T value{};
    std::memcpy(&value, head.data() + offset, sizeof value);
    return value;
  }
};

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

class RawPeer {
 public:
  explicit RawPeer(int file) : file_(file) {}
  RawPeer(RawPeer&& from) noexcept : file_(std::exchange(from.file_, -1)) {}
  ~RawPeer() {
    if (file_ >= 0) ::close(file_);
  }

  // Waits up to 10 s until somebody listens at the port.
  static RawPeer connected(std::uint16_t port) {
    const sockaddr_in address = loopback(port);
    for (int i = 0; i < 1000; ++i) {
      const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return RawPeer(file);
      ::close(file);
      ::usleep(10'000);
    }
    return RawPeer(-1);
  }

  bool say(const Bytes& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(file_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }
  bool say(const Message& message) const { return say(*encoded(message)); }

  // Absent when the other side closes, or says nothing for `patience_ms`.
  std::optional<RawFrame> hear(int patience_ms = 10'000) const {
    RawFrame frame;
    frame.head.resize(RawFrame::kHead);
    if (!read(frame.head, patience_ms)) return {};
    frame.body.resize(frame.number<std::uint64_t>(16));
    if (!read(frame.body, patience_ms)) return {};
    return frame;
  }
  std::optional<RawFrame> hear(Message::Kind kind) const {
    for (;;) {
      auto frame = hear();
      if (!frame || frame->kind() == kind) return frame;
    }
  }
  // Whether the other side closes the connection within this time, whatever it says before.
  bool is_closed_within(int patience_ms) const {
    for (;;) {
      pollfd one{file_, POLLIN, 0};
      if (::poll(&one, 1, patience_ms) <= 0) return false;
      char bytes[4096];
      if (::recv(file_, bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

 private:
  bool read(Bytes& bytes, int patience_ms) const {
    for (std::size_t got = 0; got < bytes.size();) {
      pollfd one{file_, POLLIN, 0};
      if (::poll(&one, 1, patience_ms) <= 0) return false;
      const ssize_t count = ::recv(file_, bytes.data() + got, bytes.size() - got, 0);
      if (count <= 0) return false;
      got += static_cast<std::size_t>(count);
    }
    return true;
  }

  int file_;
};

// Listens in the place of rank 0.
class RawListener {
 public:
  explicit RawListener(std::uint16_t port)
      : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(port);
    const int on = 1;
    ::setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(file_, 16) != 0) {
      throw std::runtime_error("the test cannot listen");
    }
  }
  RawListener(const RawListener&) = delete;
  ~RawListener() { ::close(file_); }
  RawPeer accept() const { return RawPeer(::accept(file_, nullptr, nullptr)); }
  int file() const { return file_; }

 private:
  int file_;
};

inline Message hello_of(int rank, int ranks, const std::string& run) {
  return {.kind = Message::Kind::hello,
          .from = rank,
          .number = static_cast<std::uint32_t>(ranks),
          .body = as_bytes(run)};
}

}  // namespace lockstep::test
