// A meeting of processes on any machines, over TCP: rank 0 listens, the others connect to it, and it passes on what
// each says. A connection that ends is a rank that has left; one that is silent is found at the deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/rendezvous/meeting.h"

namespace lockstep {

struct Roll;
class NetworkSide;

// Where rank 0 is found.
struct NetworkAddress {
  std::string host;  // A name, or an address of IPv4 or IPv6.
  std::uint16_t port = 0;
};
std::string text(const NetworkAddress& address);  // "node7:29500"
// "HOST:PORT", "[HOST]:PORT"; absent for anything else, as a path.
std::optional<NetworkAddress> network_address(const std::string& text);

// Rank 0 does not take this process: it belongs to another run, or comes as a rank that is there already.
class MeetingRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class NetworkMeeting final : public Meeting {
 public:
  // Rank 0 listens at the port on all of its machine's addresses; the others return when it has welcomed them, or throw
  // CollectiveHang when nobody has within the deadline. `run` is equal in all processes of a run; "" says nothing.
  NetworkMeeting(const NetworkAddress& address, const std::string& run, int rank, int ranks, double deadline_s);
  ~NetworkMeeting() override;  // Waits up to a second until the others have read its last words.

  const std::byte* outbox_of(int peer) const override;

 private:
  void await_welcome(const NetworkAddress& address);

  std::byte* outbox() override { return outbox_.data(); }
  void put(const CollectiveCall& call, std::size_t filled) override;
  void take() override;
  Progress progress_of(int peer, Mark mark) const override;
  void wait_for_change(int peer, Mark mark, std::uint32_t seen) override;
  CollectiveCall call_of(int peer) const override;
  Last last_of(int peer) const override;
  int silent() const override;

  std::vector<std::byte> outbox_;
  std::unique_ptr<Roll> roll_;
  std::unique_ptr<NetworkSide> side_;
};

}  // namespace lockstep
