#include "kernels/moe/expert_state.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const CountPairs& op) {
  const auto experts = op.counts.cols;
  require_shape(op.counts, 1, experts, "counts is [1, E]");
  require_shape(op.rows, 1, experts, "rows is [1, E]");
  require_shape(op.step, 1, experts, "step is [1, E]");
  require_shape(op.total, 1, experts, "total is [1, E]");
  require_shape(op.kept, 1, experts, "kept is [1, E]");
}
void check(const UpdateExpertBias& op) {
  require_shape(op.step, op.step.rows, op.bias.cols, "step is [R, E]");
  require_shape(op.bias, 1, op.bias.cols, "bias is [1, E]");
}

}  // namespace lockstep
