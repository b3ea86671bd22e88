// The two sides of a meeting over a network: the hub, which is rank 0's and passes on what each rank says, and the
// spokes of the others. Each has a thread, which alone touches its connections; what it hears goes into the roll.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/meeting.h"
#include "engine/network_link.h"
#include "engine/network_meeting.h"

namespace lockstep {

// What a rank knows of all ranks. Everything is under the mutex.
struct Roll {
  struct Peer {
    Meeting::State state = Meeting::absent;
    std::uint32_t posted = 0;
    CollectiveCall last = {};
    std::deque<Frame> rounds = {};  // Those that this rank has not taken.
  };
  enum class Welcome { awaited, given, refused };

  Roll(int rank, int ranks) : rank(rank), peers(static_cast<std::size_t>(ranks)) { peer(rank).state = Meeting::here; }
  int size() const { return static_cast<int>(peers.size()); }
  Peer& peer(int r) { return peers[static_cast<std::size_t>(r)]; }
  // These lock it, and tell who waits. A frame of its rank: it is here, has posted, has left.
  void take_in(Frame frame);
  void count_connection(int change);

  const int rank;
  std::mutex mutex;
  std::condition_variable news;
  std::vector<Peer> peers;
  int first_gone = -1;
  int connections = 0;
  Welcome welcome = Welcome::awaited;  // Of a spoke; why it is refused, or has found nobody yet.
  std::string reason;
  bool hub_is_lost = false;  // Nobody else is heard any more.
};

class NetworkSide {
 public:
  virtual ~NetworkSide() = default;  // At once; the roll outlives it.
  // From any thread: to all other ranks; and the last word.
  virtual void say(const Frame& frame) = 0;
  virtual void leave(const Frame& word) = 0;
};

// `run` is what all must say to be welcome. The hub throws std::runtime_error where it cannot listen.
std::unique_ptr<NetworkSide> make_hub(Roll& roll, std::uint16_t port, const std::string& run);
std::unique_ptr<NetworkSide> make_spoke(Roll& roll, const NetworkAddress& hub, const std::string& run);

}  // namespace lockstep
