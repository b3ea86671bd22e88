#include "kernels/moe/router.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const RouterForward<T>& op) {
  const auto rows = op.x.rows, experts = op.wr.rows, slots = op.experts.cols;
  require_shape(op.x, rows, op.x.cols, "x is [T, d]");
  require_shape(op.wr, experts, op.x.cols, "wr is [E, d]");
  require(slots <= experts && slots <= kMostSlots && experts <= kMostExperts,
          "k <= E, k <= 16, E <= 256");
  if (op.bias) require_shape(op.bias, 1, experts, "bias is [1, E]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.logits, rows, experts, "logits is [T, E]");
  require_shape(op.scores, rows, experts, "scores is [T, E]");
  require_shape(op.lse, 1, rows, "lse is [1, T]");
  require_shape(op.experts, rows, slots, "experts is [T, k]");
  require_shape(op.weights, rows, slots, "weights is [T, k]");
}
void check(const ExpertCounts& op) {
  require_shape(op.experts, op.experts.rows, op.experts.cols, "experts is [T, k]");
  require_shape(op.counts, 1, op.counts.cols, "counts is [1, E]");
}
void check(const RouterLoss& op) {
  const auto rows = op.scores.rows, experts = op.scores.cols;
  require_shape(op.scores, rows, experts, "scores is [T, E]");
  require_shape(op.lse, 1, rows, "lse is [1, T]");
  require_shape(op.counts, 1, experts, "counts is [1, E]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.sums, 1, experts + 1, "sums is [1, E + 1]");
  require_shape(op.slopes, 1, experts + 1, "slopes is [1, E + 1]");
  require_shape(op.losses, 1, 2, "losses is [1, 2]");
  require(op.top_k > 0, "top_k > 0");
}
void check(const RouterBackward& op) {
  const auto rows = op.logits.rows, experts = op.logits.cols, slots = op.experts.cols;
  require(slots <= experts && slots <= kMostSlots && experts <= kMostExperts,
          "k <= E, k <= 16, E <= 256");
  require_shape(op.logits, rows, experts, "logits is [T, E]");
  require_shape(op.scores, rows, experts, "scores is [T, E]");
  require_shape(op.lse, 1, rows, "lse is [1, T]");
  require_shape(op.experts, rows, slots, "experts is [T, k]");
  require_shape(op.dweights, rows, slots, "dweights is [T, k]");
  if (op.aux || op.z) require_shape(op.slopes, 1, experts + 1, "slopes is [1, E + 1]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dlogits, rows, experts, "dlogits is [T, E]");
}
template <class T>
void check(const RouterWeightGradient<T>& op) {
  const auto rows = op.dlogits.rows;
  require_shape(op.dlogits, rows, op.dwr.rows, "dlogits is [T, E]");
  require_shape(op.x, rows, op.dwr.cols, "x is [T, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dwr, op.dwr.rows, op.dwr.cols, "dwr is [E, d]");
}
template void check(const RouterForward<float>&);
template void check(const RouterForward<bf16>&);
template void check(const RouterWeightGradient<float>&);
template void check(const RouterWeightGradient<bf16>&);

}  // namespace lockstep
