// The scalars that the kernels of one step read from the device (StepState), computed on the host.
#pragma once

#include <cstdint>

#include "kernels/core/step_state.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct StepCounts {
  std::int64_t steps_done = 0;
  std::int64_t steps_since_load = 0;  // Only planted faults count from a checkpoint.
  std::int64_t targets = 0;           // Targets in the documents of all ranks.
  std::int64_t microbatches = 0;      // Microbatches of all ranks.
  std::int64_t ranks = 1;
};

StepState step_state(const Scenario& scenario, const StepCounts& counts);

}  // namespace lockstep
