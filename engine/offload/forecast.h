// A modelled training step with a plan's copies, by the rates of engine/offload/time_model.h.
// Compute, d2h and h2d are three streams that run beside each other and wait for each other where
// the offloader has an edge between them.
#pragma once

#include <vector>

#include "engine/offload/plan.h"

namespace lockstep {

// Seconds in one training step.
struct OffloadForecast {
  double compute = 0;           // Forward and backward passes.
  double d2h = 0, h2d = 0;      // Copies to the host, and to the device.
  double stalled = 0;           // Compute waits for copies that are not hidden.
  double slowed = 0;            // Compute takes longer because copies use memory too.
  std::vector<double> awaited;  // For each group, how long compute waits for its h2d copies.
  double seconds() const { return compute + stalled + slowed; }
  // Than without offloading, as a share.
  double slower() const { return compute == 0 ? 0 : seconds() / compute - 1; }
  double hidden() const;  // Share of all copying, both ways, that compute does not wait for.
  bool fits() const;      // Compute hardly waits.
};
OffloadForecast forecast(const OffloadPlan& plan);

}  // namespace lockstep
