// The calls that a counter counts, for the report of a run that did not count what it had to.
#pragma once

#include <string>

namespace lockstep {

// `reason` is that of the judges "vacuous" and "counters": "pairs_routed is 1, expected 2 (...)".
// "" where it names no counter, or one of no call.
std::string counted_call(const std::string& reason);

}  // namespace lockstep
