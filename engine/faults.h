// Names of the faults planted in the engine (kernels/fault.h), for tests and `lockstep mutate`.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

std::vector<std::string> engine_faults();

}  // namespace lockstep
