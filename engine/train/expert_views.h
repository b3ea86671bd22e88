// The state of the routers of a model, as judges read it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/core/operand.h"

namespace lockstep {

// The selection bias of a layer `E` with expert_bias.
struct ExpertBiasView {
  int layer = 0;
  Tensor<float> bias;  // [1, E]
};

// The (token, expert) pairs of a layer `E` in all training passes since the run began, counted for
// each expert.
struct RoutedPairs {
  int layer = 0;
  std::vector<std::int64_t> chosen;  // Pairs that the router chose.
  std::vector<std::int64_t> kept;    // The chosen pairs that were not dropped.
};

}  // namespace lockstep
