// A store for processes on any machines, over TCP: rank 0 is the server, the others are its
// clients, and it passes on every message. A connection that ends is a rank that has left; a silent
// rank is found at the deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/rendezvous/handshake.h"
#include "engine/rendezvous/store.h"

namespace lockstep {

struct Membership;
struct Message;
class Endpoint;

// The address of rank 0.
struct TcpAddress {
  std::string host;  // A name, or an address of IPv4 or IPv6.
  std::uint16_t port = 0;
};
std::string text(const TcpAddress& address);  // "node7:29500"
// "HOST:PORT", "[HOST]:PORT"; absent for anything else, as a path.
std::optional<TcpAddress> tcp_address(const std::string& text);

// Rank 0 refuses this process: it belongs to another run, or claims a rank that is already
// connected.
class JoinRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class TcpStore final : public Store {
 public:
  // Rank 0 listens; the others return when it has welcomed them, or throw CollectiveHang when
  // nobody has within the deadline. `run` is equal in all processes of a run.
  TcpStore(const TcpAddress& address, const RunIdentity& run, int rank, int ranks,
           double deadline_s);
  // Waits until the others have read its last message: up to the deadline, or up to a second if
  // this rank fails.
  ~TcpStore() override;

  std::span<const std::byte> posted_by(int peer) const override;

 private:
  void await_welcome(const TcpAddress& address);

  bool put_part(int peer, std::span<const std::byte> part) override;
  bool take_part(int peer, std::vector<std::byte>& to) override;
  void wait_for_part(int peer) override;
  const Message& round_of(int peer) const;
  std::byte* outbox() override { return outbox_.data(); }
  void put(const CollectiveCall& call, std::size_t filled) override;
  void take() override;
  Progress progress_of(int peer, Mark mark) const override;
  void wait_for_change(int peer, Mark mark, std::uint32_t seen) override;
  CollectiveCall call_of(int peer) const override;
  Last last_of(int peer) const override;
  int silent() const override;

  std::vector<std::byte> outbox_;
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<Endpoint> endpoint_;
};

}  // namespace lockstep
