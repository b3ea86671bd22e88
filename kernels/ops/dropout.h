// Hidden dropout, keyed by document and position: arithmetic.md 0.4. The key lies in device memory
// so that no graph bakes it in.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/step_state.h"

namespace lockstep {

// The constants of one dropout site. `active == 0` is the identity inside documents (p == 0, or
// evaluation).
struct Dropout {
  std::uint32_t active = 0;     // A word, so that no byte of an op is without a value.
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
