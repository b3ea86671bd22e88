// Launch streams for the graphs that hold copies. A launch is complete when all of its nodes are,
// so on the stream of compute the tail of a copy would hold up what follows. Each region and
// direction has streams of its own instead: they wait for compute, and compute waits for the event
// behind the ops of the graph, which is recorded before the graph joins its copies.
//
// Forward passes have one for each set of bins: on one stream alone a forward pass would wait for
// the copies of the forward pass before it, whose bins it does not write. A backward pass reads
// what the copies back of the backward pass before it brought, so these need no second stream.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/offload/plan.h"

namespace lockstep {

// A pass through a captured region.
struct RegionPass {
  int segment;  // Of OffloadPlan.
  int slot;
  bool forward;
};

class CopyLanes {
 public:
  CopyLanes(Device& device, const Stream& compute, const OffloadPlan& plan);

  // Whether the graph of that pass holds copies.
  bool has(const RegionPass& pass) const { return lanes_.contains({pass.segment, pass.forward}); }
  // In a capture: what compute waits for behind the launch has been captured on that stream; copies
  // may go on.
  void end_compute(const RegionPass& pass, const Stream& stream) const;
  // `launch` launches the graph of the pass on the stream that it is given.
  void launch(const RegionPass& pass, const std::function<void(const Stream&)>& launch) const;
  void synchronize() const;  // The host waits for all launches.

 private:
  struct Lane {
    Lane(Device& device, int count, int slots);
    std::vector<Stream> streams;      // Slot s launches on stream s % size.
    std::vector<Event> compute_done;  // For each slot; external.
  };
  const Event& compute_done(const RegionPass& pass) const;

  const Stream& compute_;
  Event fork_;
  std::map<std::pair<int, bool>, Lane> lanes_;  // By segment; forward or not.
};

}  // namespace lockstep
