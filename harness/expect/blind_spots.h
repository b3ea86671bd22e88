// Errors that a scenario cannot show, above all of several ranks or shards. The report lists them,
// so that a run which holds is not taken for more evidence than it is.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

std::vector<std::string> blind_spots(const Scenario& scenario);

// Whether the sums have no order: ((acc + g0) + g1) has one, g0 + g1 has none.
bool sums_have_no_order(const Scenario& scenario);

// "blind: ..." for people: a blind spot, and what in the scenario would show such errors.
std::string blind_line(const std::string& spot);

}  // namespace lockstep
