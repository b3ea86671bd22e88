// What the model of engine/offload/time_model.h says of a training step with a plan's copies: compute and either way of
// the link run beside each other, and wait for each other as the offloader's edges make them.
#pragma once

#include <vector>

#include "engine/offload/plan.h"

namespace lockstep {

// Of one step; seconds.
struct OffloadForecast {
  double compute = 0;           // Forward and backward passes.
  double out = 0, back = 0;     // Copies to the host, and to the device.
  double stalled = 0;           // Compute waits for copies: what is not hidden.
  double slowed = 0;            // Compute takes longer because copies use memory too.
  std::vector<double> awaited;  // Of each group: compute waits for its copies back.
  double seconds() const { return compute + stalled + slowed; }
  double slower() const { return compute == 0 ? 0 : seconds() / compute - 1; }  // Than a step without offloading.
  double hidden() const;  // Share of all copying, both ways, that compute does not wait for.
  bool fits() const;      // Under compute, which hardly waits.
};
OffloadForecast forecast(const OffloadPlan& plan);

}  // namespace lockstep
