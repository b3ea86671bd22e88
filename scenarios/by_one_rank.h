#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

// The same training by one rank: it has the microbatches of all. `parallel`, `fsdp` and
// `fp8.param_gather` are the defaults.
Scenario by_one_rank(Scenario scenario);

// The same training by so many ranks, which divide its microbatches; no deeper in flight than these
// allow. It is not resumed.
Scenario by_ranks(Scenario scenario, std::int64_t ranks);
// Whether so many ranks can have equally many of the microbatches of each step.
bool divides_microbatches(const Scenario& scenario, std::int64_t ranks);

}  // namespace lockstep
