// The ops that model.recompute makes a backward pass run again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/costs/costs.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Ops of a backward pass for what one layer of this symbol does not save.
std::vector<std::string> recomputed_ops(const Scenario& scenario, char symbol);
// How many a backward pass of all layers has.
std::int64_t recomputed_ops(const Scenario& scenario);

// "" or the first op that backward passes on so many ranks ran again more or less often than
// model.recompute says, as a sentence.
std::string recomputed_otherwise(const Scenario& scenario, std::int64_t ranks,
                                 const RecomputedOps& seen);

}  // namespace lockstep
