// The numbers that a step reads from device memory.
#pragma once

#include <cstdint>

namespace lockstep {

// Written by the loader before the step, at the same address in every step, so that no graph bakes
// a number in.
struct StepState {
  std::uint32_t seed_low = 0;
  std::uint32_t seed_high = 0;
  std::uint32_t step = 0;     // Optimizer steps from 0.
  float inverse_targets = 0;  // invN: 1 / unmasked targets of the whole step.
  float learning_rate = 0;
  float bias_correction1 = 0;  // ib1, ib2 of AdamW.
  float bias_correction2 = 0;
  float inverse_microbatches = 0;  // invM: 1 / microbatches of the whole step.
};

}  // namespace lockstep
