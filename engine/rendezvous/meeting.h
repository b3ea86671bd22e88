// Where the processes of a run meet: each rank says there what it calls, and leaves what the others take. One exchange
// is a round: fill the outbox, post, wait for all posts, take, say so. Every wait has a deadline: a rank that does not
// come in time becomes a report of who waits where. What carries it is a SharedMeeting (one machine) or a
// NetworkMeeting.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

class Meeting {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kOutbox = std::size_t{1} << 20;  // Bytes that a rank leaves in one round.

  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;  // The others learn that this rank has left.

  enum State : std::uint32_t { absent, here, ended, failed };  // Of a rank.

  int rank() const { return rank_; }
  int size() const { return ranks_; }
  Clock::duration deadline() const { return deadline_; }
  // Who waits where, if this rank waits in `call`. From any thread.
  std::string report(const CollectiveCall& call) const;

  // Where a process has several ranks: called before each wait for other ranks, returns when all of this process have
  // come. Set before the first round.
  std::function<void()> meet_here;

  // The calls of a round, in this order. They throw CollectiveHang when a rank is missing at the deadline or has left,
  // and CollectiveMismatch when the posts differ.
  std::byte* begin();                                             // This rank's outbox, which nobody reads any more.
  void post(const CollectiveCall& call, std::size_t filled = 0);  // So many bytes of the outbox are for the others.
  void await_posts();
  virtual const std::byte* outbox_of(int peer) const = 0;
  void end();  // All that concerns this rank is taken.

  // As many rounds as the longest of them needs: what every rank says, in the order of ranks.
  std::vector<std::string> tell(const CollectiveCall& call, const std::string& words);

 protected:
  enum class Mark { posted, taken };  // What a rank has done with its rounds.
  struct Progress {
    int gone = -1;  // The rank that has left, so that no more comes: this one, or who passes on what it says.
    std::uint32_t rounds = 0;
  };
  struct Last {
    State state = absent;
    std::uint32_t posted = 0;
    CollectiveCall call = {};
  };

  Meeting(int rank, int ranks, double deadline_s);
  std::uint32_t rounds() const { return rounds_; }  // That this rank has posted.
  std::string within() const;                       // "within 60 s": the deadline.

  virtual std::byte* outbox() = 0;
  virtual void put(const CollectiveCall& call, std::size_t filled) = 0;
  virtual void take() = 0;
  virtual Progress progress_of(int peer, Mark mark) const = 0;
  // Returns when the number is not `seen` any more, or soon: what else can happen has to be looked at too.
  virtual void wait_for_change(int peer, Mark mark, std::uint32_t seen) = 0;
  virtual CollectiveCall call_of(int peer) const = 0;  // Of this round; it has posted.
  virtual Last last_of(int peer) const = 0;            // As far as it is known here. From any thread.
  // The rank that passes on what the others say, if it has been silent: who is missing behind it is not known. Or -1.
  virtual int silent() const { return -1; }

 private:
  void await(Mark mark);

  int rank_, ranks_;
  Clock::duration deadline_;
  std::uint32_t rounds_ = 0;
  CollectiveCall call_;  // Of the round under way.
};

}  // namespace lockstep
