// Names of the faults planted in the engine (kernels/core/fault.h), for tests and `lockstep mutate`.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

std::vector<std::string> engine_faults();
// Those of them that show only where something is sharded, or on several ranks.
std::vector<std::string> sharding_faults();

}  // namespace lockstep
