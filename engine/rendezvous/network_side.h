// A rank's side of a meeting over a network: the hub, which is rank 0's and passes on what each rank says, or a spoke.
// A thread of its own alone touches its connections; what they hear goes into the roll.
#pragma once

#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/rendezvous/meeting.h"
#include "engine/rendezvous/network_link.h"
#include "engine/rendezvous/network_meeting.h"

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
  bool hub_is_lost = false;                   // Nobody else is heard any more.
  Meeting::Clock::time_point hub_heard = {};  // When a spoke last heard of the hub; else it passes nothing on.
};

// What the side's thread alone calls, once it is there.
class Connections {
 public:
  virtual ~Connections() = default;
  virtual void send(const Packet& packet) = 0;  // To all other ranks.
  virtual void finish() = 0;                    // Behind all that was sent, nothing more comes.
};

// `run` is what all must say to be welcome. The hub throws std::runtime_error where it cannot listen; it says so often
// that it lives.
std::unique_ptr<Connections> make_hub(boost::asio::io_context&, Roll& roll, std::uint16_t port, const std::string& run,
                                      Meeting::Clock::duration beat);
std::unique_ptr<Connections> make_spoke(boost::asio::io_context&, Roll& roll, const NetworkAddress& hub,
                                        const std::string& run);

class NetworkSide {
 public:
  // Rank 0's is the hub.
  NetworkSide(Roll& roll, const NetworkAddress& address, const std::string& run, Meeting::Clock::duration beat);
  ~NetworkSide();  // At once; the roll outlives it.
  // From any thread: to all other ranks; and the last word.
  void say(const Frame& frame);
  void leave(const Frame& word);

 private:
  boost::asio::io_context context_;
  std::unique_ptr<Connections> connections_;
  std::thread thread_;
};

}  // namespace lockstep
