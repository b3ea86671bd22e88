// A rank's endpoint of a TcpStore: the server, which is rank 0's and passes on every message, or a
// client. One thread at a time serves its connections: the rank's own while it waits, and a thread
// of the endpoint while the rank does other work. The messages that arrive go into the membership.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/rendezvous/connection.h"
#include "engine/rendezvous/store.h"
#include "engine/rendezvous/tcp_store.h"
#include "kernels/core/at.h"

namespace lockstep {

// The table of all ranks as one rank knows it. The mutex protects everything.
struct Membership {
  struct Peer {
    Store::State state = Store::absent;
    std::uint32_t posted = 0;
    CollectiveCall last = {};
    std::deque<SharedMessage> rounds = {};  // The rounds that this rank has not taken.
    SharedMessage part = nullptr;           // A letter's, which this rank has not taken.
    bool has_part = false;                  // This rank's, which it has not taken.
  };
  enum class Welcome { awaited, given, refused };

  Membership(int rank, int ranks) : rank(rank), peers(ranks) { peer(rank).state = Store::here; }
  int size() const { return static_cast<int>(peers.size()); }
  Peer& peer(int r) { return at(peers, r); }
  // These lock the mutex and notify waiting threads. `message` says that its rank is here, has
  // posted or has left; it has been checked.
  void take_in(const SharedMessage& message);
  void count_connection(int change);
  // What another process did makes the run impossible, or this process cannot go on; the first
  // reason counts.
  void break_off(const std::string& why);
  // Throws BadFrame unless the message may come next from its rank: a post is of a rank that is
  // here, of its next round, and at most one round ahead of this rank's.
  void require_next(const Message& message);
  void require_whole() const;  // Throws what broke it off; the caller holds the mutex.

  const int rank;
  std::mutex mutex;
  std::condition_variable news;
  std::vector<Peer> peers;
  int first_gone = -1;
  int connections = 0;
  Welcome welcome = Welcome::awaited;  // The answer that a client got; `reason` says why it is
                                       // refused, or has found no server yet.
  std::string reason;
  std::string broken;                          // Why the run was broken off; "" if it was not.
  bool server_is_lost = false;                 // No other rank is heard any more.
  Store::Clock::time_point server_heard = {};  // When a client last heard from the server.
};

// The connections of an endpoint. Only the thread that serves them calls these, or one that keeps
// others from serving.
class Peers {
 public:
  virtual ~Peers() = default;
  // Sends to all other ranks, or to the one that it is for.
  virtual void send(const SharedMessage& message) = 0;
  // Whether any thread may send from now on: who is there changes no more. Any thread may ask.
  virtual bool are_all_there() const = 0;
  virtual bool are_busy() const = 0;  // Messages wait to be sent.
  virtual void finish() = 0;          // Closes the sending side after all that was sent.
};

// All processes give the same `run`, or are refused. The server throws std::runtime_error if it
// cannot listen, and sends a heartbeat every `beat`.
std::unique_ptr<Peers> make_store_server(boost::asio::io_context&, Membership& membership,
                                         const TcpAddress& address, const RunIdentity& run,
                                         Store::Clock::duration beat);
// The most messages that wait for a rank that reads: two rounds of all ranks, of each a part of a
// letter and that it has taken one, and that each has come and gone.
inline std::size_t most_waiting(int ranks) { return 6 * static_cast<std::size_t>(ranks) + 16; }

std::unique_ptr<Peers> make_store_client(boost::asio::io_context&, Membership& membership,
                                         const TcpAddress& server, const RunIdentity& run);

class Endpoint {
 public:
  // Rank 0's endpoint is the server.
  Endpoint(Membership& membership, const TcpAddress& address, const RunIdentity& run,
           Store::Clock::duration beat);
  ~Endpoint();  // Stops at once; the membership outlives it.
  // `say` sends to all other ranks, `leave` sends the last message, and `await` returns when
  // `done`, which reads the membership, holds, or when it is too late. One thread calls them.
  void say(SharedMessage message);
  void leave(SharedMessage word);
  void await(Store::Clock::time_point until, const std::function<bool()>& done);

 private:
  void serve_while_rank_is_away();
  void serve_until(std::unique_lock<std::mutex>& lock, Store::Clock::time_point until,
                   const std::function<bool()>& done);
  void serve_one(Store::Clock::time_point until);

  Membership& membership_;
  boost::asio::io_context context_;
  // The context has work as long as there may be connections.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      context_.get_executor()};
  std::unique_ptr<Peers> peers_;
  std::atomic<int> unsent_ = 0;  // What the context is still to send, before all else.
  // The membership's mutex protects these.
  bool is_served_ = false, rank_waits_ = false, is_needed_ = false, ended_ = false;
  std::uint64_t waits_ = 0;         // How often the rank has waited.
  std::condition_variable change_;  // `is_needed_` or `ended_` is another.
  std::thread thread_;
};

}  // namespace lockstep
