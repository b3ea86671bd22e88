#include "kernels/moe/expert_product.h"

#include "kernels/core/shape.h"

namespace lockstep {
namespace {

// Experts, each with `outputs` rows of the stacked weights.
template <class Op>
void check_experts(const Op& op, std::int64_t stacked, std::int64_t outputs) {
  const auto experts = op.start.cols;
  require_shape(op.start, 1, experts, "start is [1, E]");
  require_shape(op.rows, 1, experts, "rows is [1, E]");
  require(outputs > 0 && stacked == experts * outputs, "the weights are [E * out, in]");
}

}  // namespace

template <class T>
void check(const ExpertForward<T>& op) {
  check_experts(op, op.w.rows, op.y.cols);
  require_shape(op.x, op.y.rows, op.w.cols, "x is [R, in]");
  require_shape(op.w, op.w.rows, op.w.cols, "w is [E * out, in]");
  require_shape(op.row_pair, 1, op.y.rows, "row_pair is [1, R]");
  require_shape(op.y, op.y.rows, op.y.cols, "y is [R, out]");
}
template <class T>
void check(const ExpertInputGradient<T>& op) {
  check_experts(op, op.w.rows, op.dy.cols);
  require_shape(op.dy, op.dx.rows, op.dy.cols, "dy is [R, out]");
  require_shape(op.w, op.w.rows, op.w.cols, "w is [E * out, in]");
  require_shape(op.row_pair, 1, op.dx.rows, "row_pair is [1, R]");
  require_shape(op.dx, op.dx.rows, op.w.cols, "dx is [R, in]");
}
template <class T>
void check(const ExpertWeightGradient<T>& op) {
  check_experts(op, op.dw.rows, op.dy.cols);
  require_shape(op.dy, op.dy.rows, op.dy.cols, "dy is [R, out]");
  require_shape(op.x, op.dy.rows, op.dw.cols, "x is [R, in]");
  require_shape(op.dw, op.dw.rows, op.dw.cols, "dw is [E * out, in]");
}
template void check(const ExpertForward<float>&);
template void check(const ExpertForward<bf16>&);
template void check(const ExpertInputGradient<float>&);
template void check(const ExpertInputGradient<bf16>&);
template void check(const ExpertWeightGradient<float>&);
template void check(const ExpertWeightGradient<bf16>&);

}  // namespace lockstep
