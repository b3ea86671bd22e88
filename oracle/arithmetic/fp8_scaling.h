// The scaling state of an operand under the recipe `delayed`, arithmetic.md 5.5.
#pragma once

#include <vector>

#include "oracle/arithmetic/fp8.h"

namespace lockstep::oracle {

struct DelayedRecipe {
  bool most_recent = false;  // Else the maximum of the history.
  int margin = 0;
};

struct Fp8Scaling {
  explicit Fp8Scaling(std::size_t length) : history(length) {}

  // Once a step, behind its last backward pass; `step` counts from 0.
  void roll(std::int64_t step, const DelayedRecipe& recipe, const Fp8Type& type) {
    history[step % static_cast<std::int64_t>(history.size())] = pending;
    const std::uint32_t amax =
        recipe.most_recent ? pending : *std::max_element(history.begin(), history.end());
    if (amax != 0 && !fails(amax))
      exponent = std::clamp(fp8_exponent(amax, type) - recipe.margin, -type.cap, type.cap);
    pending = 0;
  }

  std::uint32_t pending = 0;
  std::vector<std::uint32_t> history;
  int exponent = 0;
};

}  // namespace lockstep::oracle
