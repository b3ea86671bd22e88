#pragma once

#include "scenarios/scenario.h"

namespace lockstep {

// The same training by one rank: it has the microbatches of all. `parallel` and `fsdp` are the
// defaults.
Scenario by_one_rank(Scenario scenario);

}  // namespace lockstep
