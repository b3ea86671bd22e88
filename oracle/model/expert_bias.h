// The update of an expert bias after an optimizer step, arithmetic.md 2.11.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/arithmetic/mutations.h"
#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

inline constexpr float kBiasRate = 0.001f;  // Not a scenario key (docs/decisions.md).

// `chosen` counts rows per expert before dropping, summed over the step.
inline void update_expert_bias(const std::vector<std::int64_t>& chosen, std::vector<float>& bias,
                               Mutant mutant) {
  const auto experts = static_cast<std::int64_t>(bias.size());
  const float rate = mutant("moe-bias-feeds-the-busy") ? neg(kBiasRate) : kBiasRate;
  std::int64_t total = 0;
  for (const std::int64_t n : chosen) total += n;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (chosen[e] * experts < total) bias[e] = add(bias[e], rate);
    if (chosen[e] * experts > total) bias[e] = sub(bias[e], rate);
  }
}

}  // namespace lockstep::oracle
