// The cost and gain of offloading: the link's rate, and step time and device memory by fraction.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "engine/offload/forecast.h"
#include "harness/bench/link.h"
#include "harness/bench/steps.h"

namespace lockstep {

struct OffloadRow {
  Ratio fraction;
  StepTime time;
  double plain = 0;        // Seconds of a step without offloading, of the same mode.
  std::int64_t bytes = 0;  // For a microbatch, each way.
  std::int64_t saved = 0;  // Device memory, by the plan.
  int prefetch = 0;        // Segments.
  OffloadForecast model;   // What the plan expects of a step.
  double slower() const { return time.median / plain - 1; }
  // Whether it costs what copies may cost that compute hides.
  bool as_promised() const { return !model.fits() || slower() <= kMostWhereItFits; }
  static constexpr double kMostWhereItFits = 0.02;
};

struct LinkRates {
  LinkRate alone, both, beside;    // `beside`: both ways at once, while plain eager steps run.
  double step = 0, disturbed = 0;  // Seconds of such a step, alone and then.
  // The worse way beside steps, as a share of what that way carries alone.
  double kept() const {
    return std::min(beside.to_host / alone.to_host, beside.to_device / alone.to_device);
  }
};
LinkRates time_link(const Scenario& scenario, const std::string& device_kind, double budget);

// Eager, partial and full_iteration; of each the fractions 0, 1/4, 1/2, 3/4 and 1, where 0 is
// without offloading. What is offloaded is what the scenario says, or all that whole-layer graphs
// allow; under full_iteration at most 32 copies are under way if the scenario sets no limit.
// `only`: modes whose name holds this text. `done` is told each row when it is known.
void time_offload(const Scenario& scenario, const std::string& device_kind, double budget,
                  const std::string& only, const std::function<void(const OffloadRow&)>& done);

}  // namespace lockstep
