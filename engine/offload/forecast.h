// A modelled training step with the copies of a stage's plans, by the rates of
// engine/offload/time_model.h. Compute, d2h and h2d are three streams that run beside each other
// and wait for each other where the offloaders have an edge between them.
#pragma once

#include <vector>

#include "engine/offload/plan.h"

namespace lockstep {

// Seconds in one training step.
struct OffloadForecast {
  double compute = 0;       // Forward and backward passes.
  double d2h = 0, h2d = 0;  // Copies to the host, and to the device.
  double stalled = 0;       // Compute waits for copies that are not hidden.
  double slowed = 0;        // Compute takes longer because copies use memory too.
  // For each group, of one chunk after the other, how long compute waits for its h2d copies.
  std::vector<double> awaited;
  double seconds() const { return compute + stalled + slowed; }
  // Than without offloading, as a share.
  double slower() const { return compute == 0 ? 0 : seconds() / compute - 1; }
  double hidden() const;  // Share of all copying, both ways, that compute does not wait for.
  bool fits() const;      // Compute hardly waits.
};
// The passes of a step of a stage, whose chunks have these plans. Other stages let it never wait.
OffloadForecast forecast(const std::vector<OffloadPlan>& plans, const std::vector<Pass>& passes);
// The only chunk of a stage, in the order of 1F1B.
OffloadForecast forecast(const OffloadPlan& plan);

}  // namespace lockstep
