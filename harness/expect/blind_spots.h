// Errors that a scenario of several ranks or shards cannot show. The report lists them, so that a
// run which holds is not taken for more evidence than it is.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// Returns nothing for scenarios in which nothing is exchanged.
std::vector<std::string> blind_spots(const Scenario& scenario);

// Whether the sums have no order: ((acc + g0) + g1) has one, g0 + g1 has none.
bool sums_have_no_order(const Scenario& scenario);

}  // namespace lockstep
