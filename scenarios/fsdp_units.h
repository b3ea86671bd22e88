// The blocks of each unit of sharding.
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// A list as it stands, which may not fit the blocks (L35). A number counts anew in each piece of
// the model.
std::vector<std::int64_t> blocks_of_units(const Scenario& scenario);

}  // namespace lockstep
