// The counters of a run of several ranks: those of structure must agree within a pipeline stage and
// add up over the stages, those of work add up, and those of devices, of which threads share one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/case/verdict.h"

namespace lockstep {

// Counters of the run, merged from those of each rank. `apart`: each has a device of its own, and
// what devices count adds up too.
Counters merged(const std::vector<Counters>& ranks, bool apart, std::int64_t stages = 1);

// Returns "" or the first structural counter that differs, as a sentence. Ranks with different
// structure do not run one scenario, whatever their bits.
std::string disagreement(const std::vector<Counters>& ranks, std::int64_t stages = 1);

}  // namespace lockstep
