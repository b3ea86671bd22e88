// The faults at the device that the recorded cases offer.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/mutate/cases.h"
#include "harness/mutate/fault.h"

namespace lockstep {

// Returns at most `most` faults of each operator, spread over its sites; the seed selects the
// calls.
std::vector<Fault> systematic_faults(const std::vector<MutationCase>& cases, std::uint64_t seed,
                                     std::int64_t most);

// The fault with this name, with the cases that it can strike. Absent if it is none, or strikes
// none.
std::optional<Fault> systematic_fault(const std::vector<MutationCase>& cases,
                                      const std::string& name);

}  // namespace lockstep
