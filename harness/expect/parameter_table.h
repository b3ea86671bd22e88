// Names and shapes of the parameters a scenario has, worked out from its keys: arithmetic.md 0.5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

struct ParameterShape {
  std::string name;
  int layer = -1;
  std::int64_t rows = 1, cols = 0;  // 1-D ones are [1, n].
  std::int64_t count() const { return rows * cols; }
};

std::vector<ParameterShape> parameter_table(const Scenario& scenario);

// Elements of one microbatch's stored activations (docs/tensors.md).
std::int64_t activation_elements(const Scenario& scenario);

}  // namespace lockstep
