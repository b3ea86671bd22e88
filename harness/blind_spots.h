// What a scenario of several ranks or shards cannot show, whatever its bits: said in its report, so that a run which
// holds is not taken for more than it is.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Empty for scenarios in which nothing is exchanged.
std::vector<std::string> blind_spots(const Scenario& scenario);

}  // namespace lockstep
