// Errors that a scenario of several ranks or shards cannot show, whatever its bits. The report
// lists them, so that a run which holds is not taken for more than it is.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Empty for scenarios in which nothing is exchanged.
std::vector<std::string> blind_spots(const Scenario& scenario);

// A sum of two terms has none: ((acc + g0) + g1) has an order, g0 + g1 has not.
bool sums_have_no_order(const Scenario& scenario);

}  // namespace lockstep
