// How many graphs each rank launches, from the scenario and its documents alone.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/expect/expectations.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct Launches {
  std::int64_t replays = 0;
  std::int64_t too_many = 0, too_long = 0, cut = 0;  // Fallbacks by reason.

  Launches& operator+=(const Launches& more);
};

// Launches of one step after warm-up. All ranks take the same way: a microbatch falls back if any
// rank's does.
Launches launches_of(const Scenario& scenario, std::int64_t regions, const StepData& step);

// Replays of an evaluation after warm-up: of its one graph, or of the forward graphs of those
// microbatches that fit.
std::int64_t evaluation_replays(const Scenario& scenario, std::int64_t regions,
                                const StepData& step);

// Where a run that is saved and loaded stops or goes on: before that microbatch of a rank.
struct RunPoint {
  std::int64_t step = 0, microbatch = 0;
};
// What the part of a run between two points must count. Warm-up is of the run, so a part behind it
// begins with replays; a graph of a whole step runs no part of one.
std::vector<Expectation> launches_of_part(const Scenario& scenario, const DataSource& data,
                                          const RunPoint& from, const RunPoint& to);

}  // namespace lockstep
