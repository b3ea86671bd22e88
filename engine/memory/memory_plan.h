// The plan gives the tensors of all slots of a stage their addresses under
// cuda_graph.shared_memory. It is a pure function of the scenario. Two tensors share bytes only if
// they are never alive together, in no order of passes that a run of the scenario may take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/placement.h"
#include "engine/memory/tensor_lives.h"
#include "engine/plan/schedule.h"

namespace lockstep {

// The passes of a training step, or of an evaluation.
struct PassOrder {
  std::vector<Pass> passes;
  bool evaluation = false;
};
// One of each that the stage has: a training step for every microbatch count, and evaluations of as
// many. With one chunk a step has at most 2n - 1 microbatches here, with n slots: more microbatches
// make no further pair of tensors alive together, since by then every slot has had both passes
// beside all others. Cutting a step in two adds no such pair: fewer microbatches are in flight
// behind the cut. With several chunks the microbatches of a part follow each other, and whatever is
// alive together of one microbatch is so in every order.
std::vector<PassOrder> pass_orders(const Scenario& scenario, int stage = 0);

struct PlannedTensor {
  LivingTensor tensor;
  std::int64_t bytes = 0;  // Rounded up to the alignment of device memory.
  std::int64_t offset = 0;
};

struct MemoryPlan {
  static constexpr std::int64_t kAlignment = 256;  // As cudaMalloc's.
  std::vector<PlannedTensor> tensors;
  std::int64_t bytes = 0;         // Size of the shared memory.
  std::int64_t tensor_bytes = 0;  // The sum of all tensors.
  std::int64_t unshared = 0;      // What they would take without cuda_graph.shared_memory.
  std::int64_t apart_bytes = 0;  // Chunks that share nothing with each other take at least so many.
  std::int64_t first_fit_bytes = 0;  // What first-fit, largest first, would take.
  // The largest sum of tensors that are alive together, when that is, and which they are.
  std::int64_t peak_bytes = 0;
  std::string peak_place;
  std::int64_t least_bytes = 0;      // No placement is known to take less: at least the peak.
  std::vector<std::size_t> at_peak;  // Indices of `tensors`.

  std::int64_t saved() const { return unshared - bytes; }
  // The tensor of that name in that slot, or else the one of all slots; null if there is none.
  const PlannedTensor* find(const std::string& name, int slot) const;

  std::map<std::pair<int, std::string>, std::size_t> places;  // In `tensors`, by slot and name.
};

MemoryPlan plan_memory(const Scenario& scenario, int stage = 0);

}  // namespace lockstep
