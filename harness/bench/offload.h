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
  bool captured = false;  // Copies are nodes of partial graphs where they can be.
  double in_graphs = 0;   // The share of copies that are.
  StepTime time;
  double plain = 0;        // Seconds of a step without offloading, of the same mode.
  std::int64_t bytes = 0;  // Per microbatch and direction.
  std::int64_t saved = 0;  // Device memory, by the plan.
  int prefetch = 0;        // Segments.
  OffloadForecast model;   // What the plan expects of a step.
  double slower() const { return time.median / plain - 1; }
  // Whether it costs no more than copies that compute hides may cost.
  bool as_promised() const { return !model.fits() || slower() <= kMostWhereItFits; }
  static constexpr double kMostWhereItFits = 0.02;
};

struct LinkRates {
  LinkRate alone, both, beside;    // `beside`: both ways at once, while plain eager steps run.
  double step = 0, disturbed = 0;  // Seconds of such a step, without and with copies.
  // The slower direction beside steps, as a fraction of its rate alone.
  double kept() const {
    return std::min(beside.to_host / alone.to_host, beside.to_device / alone.to_device);
  }
};
LinkRates time_link(const Scenario& scenario, const std::string& device_kind, double budget);

// Measures eager, partial and full_iteration, each with the fractions 0 (without offloading), 1/4,
// 1/2, 3/4 and 1; partial with eager copies and, where some can be nodes, with captured ones right
// behind. Rows are timed in rounds, two or more with the budget, every other one in the opposite
// order. The scenario says what is offloaded, else it is all that whole-layer graphs allow. Under
// full_iteration at most 32 copies are in flight if the scenario sets no limit. `only` is MODE or
// MODE@FRACTION: texts that the names of modes and the fractions hold. `done` is called with each
// row when all rows of its mode are timed.
void time_offload(const Scenario& scenario, const std::string& device_kind, double budget,
                  const std::string& only, const std::function<void(const OffloadRow&)>& done);

}  // namespace lockstep
