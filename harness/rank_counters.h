// The counters of a run of several ranks: those of structure must agree, those of work add up, those of the device are
// one.
#pragma once

#include <string>
#include <vector>

#include "harness/verdict.h"

namespace lockstep {

// Of the run, from those of each rank.
Counters merged(const std::vector<Counters>& ranks);

// "" or the first counter of structure that differs, as a sentence. Ranks that do not take the same way are none of the
// scenario's, whatever their bits.
std::string disagreement(const std::vector<Counters>& ranks);

}  // namespace lockstep
