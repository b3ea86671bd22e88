// The sharding of a scenario, as `describe` prints it.
#pragma once

#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

// Units, buckets, shards, slots and collectives of the first of its precisions; "" where nothing is
// exchanged.
std::string sharding_table(const Scenario& scenario);

}  // namespace lockstep
