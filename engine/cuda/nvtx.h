// Ranges of NVTX's domain "lockstep", which Nsight Systems and other tools of CUDA show.
#pragma once

#include <string>

#include "engine/device/profiler.h"

namespace lockstep {

// Null where no tool listens. Lives as long as the process.
Profiler* nvtx_profiler();
// The version of the headers that this was built with; "" where the toolkit had none.
std::string nvtx_version();

}  // namespace lockstep
