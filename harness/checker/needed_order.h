// The order that a run needs, beside the one that it has: vector clocks that follow only from what
// is accessed and what the scenario declares (docs/costs.md). Work that is ordered after more than
// that waits for nothing, and no bit shows it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/access/clock.h"
#include "harness/access/shadow.h"
#include "harness/access/touch.h"
#include "harness/checker/stretches.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The purpose of an item's stream. In a graph it is the stream that was captured.
enum class Lane : std::uint8_t {
  host,
  compute,
  copies_out,
  copies_back,
  gathers,
  loads,
  reductions,
  sends,  // To another pipeline stage.
  other
};
Lane lane_named(const std::string& stream);

// The scenario says this about order, beside the accesses.
struct DeclaredOrder {
  std::optional<std::int64_t> max_inflight = {};  // The most copies out under way.
  // Copies are nodes of graphs: groups are counted in each pass by itself, and compute and copies
  // of a direction are queues of their own.
  bool captured_copies = false;
  // Pinned buffers rotate: a copy out may wait for the latest copy back of the slot that had its
  // buffer before.
  bool rotates = false;
  // A copy out may move no row, and is not seen then: any copy out may be waited for.
  bool copies_may_be_empty = false;
  // By layer: the piece of the model that has it, and whether it is in the last block of a piece
  // that has no head. No pass of the head runs beside what is copied back for its backward pass,
  // only the pass before; that is of the same piece, it may need the memory.
  std::vector<std::int64_t> piece_of_layer = {};
  std::vector<bool> ends_a_piece = {};
  bool gradient_slots = false;  // Units take turns in slots for gradients.
  // Ranks that share experts exchange rows within a layer, so that they know a part of each
  // other's.
  bool exchanges_in_layers = false;
  bool weights_stay = false;  // A unit's are gathered behind its own update.
  bool whole_steps = false;   // Graphs hold whole steps.
  // Stages offload: one receives its input into memory that other tensors have had, behind all of
  // compute, and copies back wait for what compute waits for, as the gradient of another stage.
  bool inputs_leave = false;
  std::vector<int> stretch_of_layer = {};  // The first layer of what one graph may hold.
};
DeclaredOrder declared_order(const Scenario& scenario);

class NeededOrder {
 public:
  explicit NeededOrder(DeclaredOrder declared)
      : declared_(std::move(declared)), stretches_(declared_.stretch_of_layer) {}

  // The checker calls these; threads and clocks are its own.
  struct Item {
    int thread;
    Lane lane;
    const std::string& stream;
    const Work& work;
  };
  // `has`: all that the item is ordered after, itself included.
  void performs(const Item& item, const std::vector<Touch>& touches, const Clock& has);
  void enters(int thread, const Clock& host) { needed_[thread].join(host); }
  // A record behind copies or exchanges: they are waited for together.
  void ends_group(int thread) { stretches_.end_group(thread); }
  // A collective of ranks that are threads begins, and waits for its peers.
  void begins_call(int thread, int rank, const Clock& has);
  void records_for_peers(int event, int thread) { recorded_[event] = needed_[thread]; }
  void awaits_peers(int event, int thread);
  void launches(int graph, const std::vector<int>& threads, int rank, const Clock& has);
  void launched(int graph, const std::vector<int>& threads);

  // The first finding, and how many there are; "" if there is none. Called after the run.
  std::string finding();
  // The most groups of copies out, and of gathers, that were under way beside an item of compute,
  // on any rank.
  std::int64_t most_copies() const { return most_copies_; }
  std::int64_t most_gathers() const { return most_gathers_; }

 private:
  struct Call {
    int thread;
    std::uint64_t time;  // The last item before it has this.
  };
  struct UnderWay {
    int thread;
    std::uint64_t time;  // Its last item has this.
    std::int64_t group;
    Work work = {};
    bool runs_beside = false;  // Some item of compute.
  };
  struct Rank {
    std::vector<Call> calls;
    std::deque<Clock> copies_out;                    // By groups, as many as may be under way.
    std::pair<int, std::int64_t> last_copy{-1, -1};  // Thread and group of the last copy out.
    std::pair<int, std::int64_t> last_reduction{-1, -1};
    Clock reduced;    // The last unit's reductions.
    Clock reused;     // Reductions of the units before, whose slots compute may wait for.
    Clock throttled;  // The copies out that max_inflight lets compute wait for.
    // Joins of the clocks of all items of a kind so far.
    Clock loaded, moved, exchanged, sent, brought_back, submitted;
    Clock outside_of_passes;             // `submitted`, up to its last item outside of passes.
    std::map<int, Clock> transfers_out;  // By microbatch: sends to other stages in graphs.
    std::vector<UnderWay> out, back, gathers;
    Touch last_of_compute;
    int last_layer = -1;  // That compute has worked in.
  };

  void justify(const Item& item, const std::vector<Touch>& touches);
  bool is_behind_updates(Lane lane, const StepLocation& place) const;
  bool gathers_own_update(const Item& item, const std::vector<Touch>& touches);
  static const Clock& queue(const Rank& rank, Lane lane);
  void join_own_call(const Work& waiter, const Touch& of_peer, Clock& needed);
  void round_up(Clock& needed, const Item& item) const;
  void note(const Item& item, const Clock& has);
  void note_copy_out(const Item& item, Rank& rank);
  void note_reduction(const Item& item, Rank& rank);
  void note_compute(const Item& item, Rank& rank, const Clock& has);
  bool may_be_alone(int layer, const Rank& rank) const;
  void begin(std::vector<UnderWay>& list, const Item& item, std::uint64_t time) const;
  // A sentence, or a stretch that has more than it needs as far as that is known.
  struct Found {
    std::string text;
    int thread = -1;
    Stretch doubted;  // As it was when it ended.
  };
  void judge(int thread);
  Clock needed_with_whole_groups(const Found& one) const;
  std::string unneeded(const Stretch& later, int more) const;
  void find(const std::string& text);

  const DeclaredOrder declared_;
  std::map<int, Clock> needed_;               // By thread.
  std::map<int, Clock> recorded_, finished_;  // By event; by graph.
  std::map<int, Rank> ranks_;
  std::map<int, Shadow> memory_;  // By allocation.
  Stretches stretches_;
  std::vector<Found> found_;
  std::int64_t most_copies_ = 0, most_gathers_ = 0;
};

}  // namespace lockstep
