// The cost of sharding: step time beside the time of its work and of its exchanges, each measured
// alone in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "harness/judge/local_ranks.h"
#include "harness/ranks/exchanges.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct FsdpTimes {
  std::string mode;  // "optim_grads_params partial"
  std::string not_run;
  double step = 0;  // Median seconds of a step; of the slowest rank, as all here.
  // Seconds of the same step without exchanges, but with its streams, events and folds.
  double compute = 0;
  double communication = 0;  // For its exchanges without the step: bare calls, or the engine's
                             // where there is no library.
  // The host's time in the step without waits for the device. It includes waits for the hosts of
  // other ranks, and is absent where ranks share a host.
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
