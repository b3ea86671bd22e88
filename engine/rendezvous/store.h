// The rendezvous store of the processes of a run, as PyTorch's Store with a barrier in each round.
// In a round each rank fills its outbox and posts it with the call that it makes, waits for the
// posts of all ranks, reads their outboxes and ends the round. Every wait has a deadline: a rank
// that does not come in time becomes a report of which rank waits where. A SharedMemoryStore serves
// one machine, a TcpStore any machines.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

class Store {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kOutbox = std::size_t{1}
                                         << 20;  // The most bytes that a rank posts in one round.

  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;  // Tells the others that this rank has left.

  // The state of a rank. One that is lost died without a word, and another process said so.
  enum State : std::uint32_t { absent, here, ended, failed, lost };

  int rank() const { return rank_; }
  int size() const { return ranks_; }
  Clock::duration deadline() const { return deadline_; }
  // Says which rank waits where, if this rank waits in `call`. May be called from any thread.
  std::string report(const CollectiveCall& call) const;
  // A rank that is known to have ended in that state, or -1. May be called from any thread.
  int one_that_is(State state) const;

  // Called before each wait for other ranks in a process with several ranks; returns when all ranks
  // of this process have called it. Must be set before the first round.
  std::function<void()> local_barrier;

  // The steps of a round, in this order. They throw CollectiveHang when a rank is missing at the
  // deadline or has left, and CollectiveMismatch when the posts differ.
  std::byte* begin();  // Returns this rank's outbox, which has no readers any more.
  // Posts a call; `filled` bytes of the outbox are for the others.
  void post(const CollectiveCall& call, std::size_t filled = 0);
  void await_posts();
  // What the peer has posted, which must be just `needed` bytes: throws BadFrame if it is not.
  const std::byte* outbox_of(int peer, std::size_t needed) const;
  // The same of any length: for a reader that finds the length in it.
  virtual std::span<const std::byte> posted_by(int peer) const = 0;
  const std::byte* outbox_of(int peer) const { return posted_by(peer).data(); }
  void end();  // This rank has read all that it needs.

  // The words of every rank, in the order of ranks, in as many rounds as the longest needs. Words
  // are at most kLongestWords: a rank that announces more is none of ours.
  static constexpr std::size_t kLongestWords = std::size_t{64} << 20;
  std::vector<std::string> all_gather_object(const CollectiveCall& call, const std::string& words);

 protected:
  enum class Mark { posted, taken };  // The two steps of a round that others wait for.
  struct Progress {
    int gone = -1;  // The rank that has left, so that no more comes: the peer, or the server that
                    // passes on its posts. Else -1.
    std::uint32_t rounds = 0;
  };
  struct Last {
    State state = absent;
    std::uint32_t posted = 0;
    CollectiveCall call = {};
  };

  Store(int rank, int ranks, double deadline_s);
  std::uint32_t rounds() const { return rounds_; }  // The rounds that this rank has posted.
  std::string within() const;                       // "within 60 s": the deadline.

  virtual std::byte* outbox() = 0;
  virtual void put(const CollectiveCall& call, std::size_t filled) = 0;
  virtual void take() = 0;
  virtual Progress progress_of(int peer, Mark mark) const = 0;
  // Returns when the number is no longer `seen`, or after a short time, so that the caller can
  // check for other changes.
  virtual void wait_for_change(int peer, Mark mark, std::uint32_t seen) = 0;
  // The call of this round, which the peer has posted.
  virtual CollectiveCall call_of(int peer) const = 0;
  // As far as this process knows. May be called from any thread.
  virtual Last last_of(int peer) const = 0;
  // Returns the rank that serves the store if it has been silent, since then it is not known which
  // rank behind it is missing; otherwise -1.
  virtual int silent() const { return -1; }

 private:
  void await(Mark mark);
  std::size_t announced_by(int peer) const;

  int rank_, ranks_;
  Clock::duration deadline_;
  std::uint32_t rounds_ = 0;
  CollectiveCall call_;  // The call of the current round.
};

}  // namespace lockstep
