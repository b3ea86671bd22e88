#include "kernels/ops/optimizer.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const GradientRowSums& op) {
  require_shape(op.g, op.g.rows, op.g.cols, "g is [rows, cols]");
  require_shape(op.sums, 1, op.g.rows, "sums is [1, rows]");
}
void check(const OrderRowSums& op) {
  require_shape(op.from, 1, op.from.cols, "from is [1, n]");
  require_shape(op.order, 1, op.order.cols, "order is [1, rows]");
  require_shape(op.to, 1, op.order.cols, "to is [1, rows]");
}
void check(const GradientNorm& op) {
  require_shape(op.sums, 1, op.sums.cols, "sums is [1, rows of all parameters]");
  require_shape(op.norm, 1, 2, "norm is [1, 2]");
  require(op.max_norm >= 0, "max_norm >= 0");
}
void check(const AdamW& op) {
  const auto rows = op.w.rows, cols = op.w.cols;
  require_shape(op.g, rows, cols, "g is shaped as w");
  require_shape(op.norm, 1, 2, "norm is [1, 2]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.w, rows, cols, "w is [rows, cols]");
  require_shape(op.m, rows, cols, "m is shaped as w");
  require_shape(op.v, rows, cols, "v is shaped as w");
  if (op.copy) require_shape(op.copy, rows, cols, "copy is shaped as w");
  require(op.eps >= 0, "eps >= 0");  // A tiny one is zero as a float.
}
void check(const RoundWeights& op) {
  require_shape(op.w, op.w.rows, op.w.cols, "w is [rows, cols]");
  require_shape(op.copy, op.w.rows, op.w.cols, "copy is shaped as w");
}

}  // namespace lockstep
