// Ranges of NVTX's domain "lockstep", which Nsight Systems and other tools of CUDA show.
#pragma once

#include "engine/profiler.h"

namespace lockstep {

// Null where no tool listens. Lives as long as the process.
Profiler* nvtx_profiler();

}  // namespace lockstep
