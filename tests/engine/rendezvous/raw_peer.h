// A peer that speaks the frames of a TcpStore by hand, over a plain socket: it may say anything.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/rendezvous/frame.h"
#include "engine/rendezvous/handshake.h"

namespace lockstep::test {

using lockstep::Bytes;
inline Bytes zeros(std::size_t count) { return Bytes(count, std::byte{0}); }

// A message as the bytes of a frame.
inline Bytes frame_of(const Message& message, Seal* seal = nullptr) {
  const FrameHead head = head_of(message, seal);
  Bytes bytes(sizeof head);
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes.insert(bytes.end(), message.body.begin(), message.body.end());
  return bytes;
}

// A frame as it came.
struct RawFrame {
  FrameHead head;
  Bytes body;
};

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// Whether the port is this process's until it ends, although nobody listens at it yet: it locks the
// byte of that number in a file, as tests/hostile/ranks.py does.
inline bool reserves(std::uint16_t port) {
  static const int file = ::open(("/tmp/lockstep-test-ports-" + std::to_string(::getuid())).c_str(),
                                 O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  flock byte{};
  byte.l_type = F_WRLCK;
  byte.l_whence = SEEK_SET;
  byte.l_start = port;
  byte.l_len = 1;
  return ::fcntl(file, F_SETLK, &byte) == 0;
}

// A reserved port that nobody listens at, below those that the system gives to who connects.
inline std::uint16_t free_port() {
  static unsigned next = static_cast<unsigned>(::getpid()) * 7;
  for (;;) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(20000 + next++ % 12000));
    const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool free =
        ::bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(file);
    if (free && reserves(ntohs(address.sin_port))) return ntohs(address.sin_port);
  }
}

class RawPeer {
 public:
  using Kind = Message::Kind;
  explicit RawPeer(int file) : file_(file) {}
  RawPeer(RawPeer&& from) noexcept : file_(std::exchange(from.file_, -1)) {}
  ~RawPeer() {
    if (file_ >= 0) ::close(file_);
  }

  // Waits `tries` times 10 ms until somebody listens at the port.
  static RawPeer connected(std::uint16_t port, int tries = 1000) {
    const sockaddr_in address = loopback(port);
    for (int i = 0; i < tries; ++i) {
      const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return RawPeer(file);
      ::close(file);
      ::usleep(10'000);
    }
    return RawPeer(-1);
  }

  // ---- The handshake ---------------------------------------------------------------------------

  // Says who it is and that it has the key. The answer is still to be heard.
  bool prove(int rank, std::uint32_t ranks, const RunIdentity& run) {
    const Digest random = random_digest();
    say({.kind = Kind::hello,
         .from = rank,
         .number = ranks,
         .body = {random.begin(), random.end()}});
    const auto challenge = hear(Kind::challenge);
    if (!challenge) return false;
    const Handshake handshake(run.key, rank, ranks, random, halves(challenge->body).first);
    Bytes body = as_bytes(run.name);
    const Digest proof = handshake.proof_of_rank(body);
    body.insert(body.begin(), proof.begin(), proof.end());
    say({.kind = Kind::proof, .from = rank, .body = body});
    seal_ = handshake.seal_of_rank();
    return true;
  }
  bool join(int rank, std::uint32_t ranks, const RunIdentity& run) {
    return prove(rank, ranks, run) && hear(Kind::welcome);
  }
  // In the place of rank 0.
  bool welcome(const RunIdentity& run) {
    const auto hello = hear(Kind::hello);
    if (!hello) return false;
    const Digest random = random_digest();
    const Handshake handshake(run.key, hello->head.from, hello->head.number, hello->body, random);
    const Digest proof = handshake.proof_of_rank_0();
    Bytes body(random.begin(), random.end());
    body.insert(body.end(), proof.begin(), proof.end());
    say({.kind = Kind::challenge, .body = body});
    if (!hear(Kind::proof)) return false;
    seal_ = handshake.seal_of_rank_0();
    return say({.kind = Kind::welcome});
  }

  // ---- Bytes -----------------------------------------------------------------------------------

  bool say(const Bytes& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t count = ::send(file_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return false;
      sent += static_cast<std::size_t>(count);
    }
    return true;
  }
  bool say(const Message& message) { return say(frame(message)); }
  // The bytes of the next frame, with a seal after the handshake.
  Bytes frame(const Message& message) { return frame_of(message, seal_ ? &*seal_ : nullptr); }

  // Absent when the other side closes, or says nothing for `patience_ms`.
  std::optional<RawFrame> hear(int patience_ms = 10'000) const {
    RawFrame frame;
    Bytes head(sizeof frame.head);
    if (!read(head, patience_ms)) return {};
    std::memcpy(&frame.head, head.data(), sizeof frame.head);
    frame.body.resize(frame.head.bytes);
    if (!read(frame.body, patience_ms)) return {};
    return frame;
  }
  std::optional<RawFrame> hear(Kind kind) const {
    for (;;) {
      auto frame = hear();
      if (!frame || frame->head.kind == kind) return frame;
    }
  }
  // Whether the other side closes the connection within this time, whatever it says before.
  bool is_closed_within(int patience_ms) const {
    if (file_ < 0) return true;
    for (;;) {
      pollfd one{file_, POLLIN, 0};
      if (::poll(&one, 1, patience_ms) <= 0) return false;
      char bytes[4096];
      if (::recv(file_, bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

 private:
  bool read(Bytes& bytes, int patience_ms) const {
    if (file_ < 0) return false;  // poll() would wait all the same.
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
  std::optional<Seal> seal_;
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
  void stop() const { ::shutdown(file_, SHUT_RDWR); }  // accept() returns.

 private:
  int file_;
};

}  // namespace lockstep::test
