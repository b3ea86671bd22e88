// The time of a step of several ranks.
#pragma once

#include <vector>

#include "engine/train/trainer.h"
#include "harness/bench/host_time.h"

namespace lockstep {

struct RankSteps {
  double step = 0, host = 0;     // Median seconds of the slowest rank in each step.
  std::vector<double> of_ranks;  // Median seconds of each rank.
};

// At least `budget` seconds of steps behind a few that do not count. All ranks call it.
RankSteps time_rank_steps(Trainer& trainer, Communicator& communicator, HostTime& host,
                          double budget);

}  // namespace lockstep
