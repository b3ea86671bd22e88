// A step of training in binary64, on weights that an engine says it had, and how far roundings of
// the engine's precision can move it (docs/engine-protocol.md, section 13, R16).
#pragma once

#include <string>
#include <vector>

#include "harness/foreign/engine_case.h"

namespace lockstep::foreign {

// A tensor that the engine may observe too. A row tensor has the rows of documents alone, in feed
// order.
struct ExpectedTensor {
  TensorId id = {};
  std::int64_t columns = 1;
  std::vector<double> values = {};
  double moved = 0;    // Length of the difference that nudging makes, by its mean square.
  double largest = 0;  // Largest difference of one value that nudging makes.
  // The length of what it is a sum of: the microbatches' gradients, the largest logits.
  double terms = 0;
  double length() const;
};

struct ExpectedStep {
  std::vector<ExpectedTensor> order;  // Program order; gradients as a backward pass makes them.
  // "", or why roundings decide more than the last places.
  std::string why_not;
};

// Passes that are nudged.
inline constexpr int kNudgedPasses = 8;

// `weights` by parameter index, `expert_bias` by symbol of the pattern.
struct StepWeights {
  std::vector<std::vector<double>> weights, expert_bias;
};
ExpectedStep expected_step(const EngineCase& one, std::int64_t step, const StepWeights& begin,
                           double loss_scale);

}  // namespace lockstep::foreign
