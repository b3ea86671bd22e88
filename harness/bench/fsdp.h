// The cost of sharding: step time beside the time of its work and of its exchanges, each measured
// alone in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "harness/judge/local_ranks.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The exchanges of one kind in a step.
struct ExchangeTimes {
  std::int64_t calls = 0;
  double bytes = 0;  // That leave a rank.
  // Seconds of all of them, one behind the other with nothing else, by the engine.
  double engine = 0;
  // On the streams of a step, waiting for the others included; absent likewise.
  std::optional<double> in_step;
  // The same as bare calls of the library; absent where there is none.
  std::optional<double> library;
};

struct FsdpTimes {
  std::string mode;  // "optim_grads_params partial"
  std::string not_run;
  double step = 0;  // Median seconds of a step; of the slowest rank, as all here.
  // For the same step without its exchanges: streams, events, folds and all else are there.
  double compute = 0;
  double communication = 0;  // For its exchanges without the step: bare calls, or the engine's
                             // where there is no library.
  // The host's time of the step, in which it did not wait for the device; it meets the others'
  // hosts in it. Absent where ranks share a host.
  std::optional<double> host;
  ExchangeTimes gathers, reductions;

  double exposed() const { return step - compute; }
  double over_the_larger() const {
    return step / (compute > communication ? compute : communication);
  }
};

// Strategies x {eager, partial} whose mode holds `only`, on the ranks of this process; rank 0 calls
// `done`. At least `budget` seconds of steps for each time.
void time_fsdp(const Scenario& scenario, const std::string& device_kind, const LocalRanks& ranks,
               const std::string& only, double budget,
               const std::function<void(const FsdpTimes&)>& done);

}  // namespace lockstep
