// Memory that the processes of a run share: each rank says there what it calls, and leaves what the others take. One
// exchange is a round: fill the outbox, post, wait for all posts, take, say so. Every wait has a deadline: a rank that
// does not come in time becomes a report of who waits where.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/collective_ledger.h"

namespace lockstep {

class Segment {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kOutbox = std::size_t{1} << 20;  // Bytes that a rank leaves in one round.

  // A fresh segment at `path`, in the place of what was there: by rank 0, or by whoever starts the processes, once.
  static void create(const std::string& path, int ranks);

  // Joins as `rank`, once a process, and waits for the segment if it is not there yet. A process that finds its rank
  // taken has found an older segment, and waits for a fresh one in its place.
  Segment(const std::string& path, int rank, int ranks, double deadline_s);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();  // The others learn that this rank has left.

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
  std::byte* begin();                     // This rank's outbox, which nobody reads any more.
  void post(const CollectiveCall& call);  // The outbox is filled.
  void await_posts();
  const std::byte* outbox_of(int peer) const;
  void end();  // All that concerns this rank is taken.

  // As many rounds as the longest of them needs: what every rank says, in the order of ranks.
  std::vector<std::string> tell(const CollectiveCall& call, const std::string& words);

 private:
  struct Mailbox;
  struct Counter;

  bool open(const std::string& path);
  void await(Counter Mailbox::*counter, std::uint32_t value, const CollectiveCall& call);
  Mailbox& mailbox(int rank) const;

  int rank_, ranks_;
  Clock::duration deadline_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint32_t rounds_ = 0;  // That were posted.
  CollectiveCall call_;       // Of the round under way.
};

}  // namespace lockstep
