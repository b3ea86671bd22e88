// What the model of engine/offload_time.h says of a training step with a plan's copies: compute and either way of the
// link run beside each other, and wait for each other as the offloader's edges make them.
#pragma once

#include <vector>

#include "engine/offload_plan.h"

namespace lockstep {

// Of one step; seconds.
struct OffloadForecast {
  double compute = 0;           // Forward and backward passes.
  double copies = 0;            // Either way.
  double stalled = 0;           // Compute waits for copies: what is not hidden.
  std::vector<double> awaited;  // Of each group: compute waits for its copies back.
  double seconds() const { return compute + stalled; }
  double hidden() const;  // Share of all copying, both ways, that costs no time.
};
OffloadForecast forecast(const OffloadPlan& plan);

}  // namespace lockstep
