// Hidden dropout, keyed by document and position: arithmetic.md 0.4. The key lies in device memory
// so that no graph bakes it.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"

namespace lockstep {

// The numbers that a step reads from device memory: written by the loader before the step, the same
// address in every step.
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

// The constants of one dropout site. `active == false` is the identity inside documents (p == 0, or
// evaluation).
struct Dropout {
  bool active = false;
  std::uint32_t site = 0;       // layer * 4 + site, below 2^12.
  std::uint32_t threshold = 0;  // Keep iff word >= threshold; floor(p * 2^32).
  float scale = 1;              // 1 / (1 - p).
  friend constexpr bool operator==(const Dropout&, const Dropout&) = default;
};

// drop(x) of one element. `document` is the document's number in the step, `position` counts from
// its first token.
LOCKSTEP_HD float drop(const Dropout& d, const StepState& s, std::uint32_t document,
                       std::uint32_t position, std::uint32_t channel, float x) {
  if (!d.active) return x;
  const Philox r =
      philox(s.seed_low, s.seed_high, (channel >> 2) | (d.site << 20), position, document, s.step);
  return r.word[channel & 3] >= d.threshold ? mul(x, d.scale) : 0.0f;
}

}  // namespace lockstep
