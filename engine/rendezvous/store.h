// The rendezvous store of the processes of a run, as PyTorch's Store with a barrier in each round.
// In a round each rank fills its outbox and posts it with the call that it makes, waits for the
// posts of all ranks, reads their outboxes and ends the round. Every wait has a deadline: a rank
// that does not come in time becomes a report of which rank waits where. Beside rounds a rank sends
// letters to another. A SharedMemoryStore serves one machine, a TcpStore any machines.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/rendezvous/collective_errors.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

// What one rank sends to another: the call as the sender has it, and the data.
struct Letter {
  CollectiveCall call;
  std::vector<std::byte> data;
};

class Store {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kOutbox = std::size_t{1}
                                         << 20;  // The most bytes that a rank posts in one round.
  static constexpr std::size_t kMostOfPart = std::size_t{16} << 10;  // A letter goes in such parts.

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

  // Is told of each call that this rank posts, and how many bytes of its outbox are filled. Must be
  // set before the first round.
  std::function<void(const CollectiveCall&, std::size_t)> on_post;

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

  // Letters. Those of one rank to another come in order. send() never waits: what the other has no
  // room for yet goes out while this rank waits for something. receive() waits for the first letter
  // on the way of `awaited` (CollectiveCall::is_on_the_way_of), and keeps others; it throws as a
  // round does. poll() returns the first letter of a group that has come, if one has.
  void send(int peer, const CollectiveCall& call, std::span<const std::byte> data);
  Letter receive(int peer, const CollectiveCall& awaited);
  std::optional<Letter> poll(int peer, std::uint8_t group);

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
  virtual int number_of(int rank) const { return rank; }  // In the whole run, for reports.
  std::uint32_t rounds() const { return rounds_; }        // The rounds that this rank has posted.
  std::string within() const;                             // "within 60 s": the deadline.

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
  // Sends a part to the peer if it has taken the one before; else returns false.
  virtual bool put_part(int peer, std::span<const std::byte> part) = 0;
  // Appends the part that the peer has sent, if one has come.
  virtual bool take_part(int peer, std::vector<std::byte>& to) = 0;
  // Returns when a part of the peer has come, or after a short time.
  virtual void wait_for_part(int peer) = 0;
  // Returns the rank that serves the store if it has been silent, since then it is not known which
  // rank behind it is missing; otherwise -1.
  virtual int silent() const { return -1; }

 private:
  friend class GroupStore;
  // What goes to and comes from a peer. A letter is its call, the length of its data, and these.
  struct Post {
    std::deque<std::vector<std::byte>> out = {};
    std::size_t sent = 0;  // So much of the first one.
    std::vector<std::byte> in = {};
    std::deque<Letter> letters = {};
  };
  Post& post_of(int peer);
  bool carry();  // Moves what can be moved. Whether letters still wait to go out.
  void open_letters(int peer, Post& post) const;
  void carry_all();
  void wait_for_letters(int peer);
  void require_in_time(int peer, const CollectiveCall& call, Clock::time_point deadline) const;
  void await(Mark mark);
  std::size_t announced_by(int peer) const;

  int rank_, ranks_;
  Clock::duration deadline_;
  std::uint32_t rounds_ = 0;
  CollectiveCall call_;  // The call of the current round.
  std::vector<Post> posts_;
  std::uint8_t groups_ = 0;  // That this rank has made of the store's ranks.
};

}  // namespace lockstep
