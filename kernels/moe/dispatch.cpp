#include "kernels/moe/dispatch.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const ExpertLayout& op) {
  const auto experts = op.counts.cols;
  require_shape(op.experts, op.experts.rows, op.experts.cols, "experts is [T, k]");
  require_shape(op.counts, 1, experts, "counts is [1, E]");
  require_shape(op.start, 1, experts, "start is [1, E]");
  require_shape(op.rows, 1, experts, "rows is [1, E]");
  require_shape(op.pair_row, op.experts.rows, op.experts.cols, "pair_row is [T, k]");
  require_shape(op.row_pair, 1, op.row_pair.cols, "row_pair is [1, R]");
  require(op.capacity >= 0 && (!op.padded || op.capacity > 0), "padding needs a capacity");
  require(!op.padded || op.row_pair.cols == experts * op.capacity,
          "a padded buffer has E * C rows");
}
template <class T>
void check(const Dispatch<T>& op) {
  require_shape(op.x, op.x.rows, op.x.cols, "x is [T, d]");
  require_shape(op.row_pair, 1, op.buffer.rows, "row_pair is [1, R]");
  require_shape(op.buffer, op.buffer.rows, op.x.cols, "buffer is [R, d]");
  require(op.top_k > 0, "top_k > 0");
  require_amax<T>(op);
}
template <class T>
void check(const Combine<T>& op) {
  const auto rows = op.out.rows, d = op.out.cols, slots = op.weights.cols;
  require_shape(op.y, op.y.rows, d, "y is [R, d]");
  require_shape(op.weights, rows, slots, "weights is [T, k]");
  require_shape(op.pair_row, rows, slots, "pair_row is [T, k]");
  if (op.shared) require_shape(op.shared, rows, d, "shared is [T, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.out, rows, d, "out is [T, d]");
}
template <class T>
void check(const CombineBackward<T>& op) {
  const auto rows = op.dout.rows, d = op.dout.cols, slots = op.weights.cols;
  require_shape(op.dout, rows, d, "dout is [T, d]");
  require_shape(op.y, op.y.rows, d, "y is [R, d]");
  require_shape(op.weights, rows, slots, "weights is [T, k]");
  require_shape(op.pair_row, rows, slots, "pair_row is [T, k]");
  require_shape(op.row_pair, 1, op.y.rows, "row_pair is [1, R]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dy, op.y.rows, d, "dy is [R, d]");
  require_shape(op.dweights, rows, slots, "dweights is [T, k]");
  require_amax<T>(op);
}
template <class T>
void check(const DispatchBackward<T>& op) {
  const auto rows = op.dx.rows, d = op.dx.cols;
  require_shape(op.dbuffer, op.dbuffer.rows, d, "dbuffer is [R, d]");
  require_shape(op.pair_row, rows, op.pair_row.cols, "pair_row is [T, k]");
  if (op.dshared) require_shape(op.dshared, rows, d, "dshared is [T, d]");
  require_shape(op.dlogits, rows, op.wr.rows, "dlogits is [T, E]");
  require_shape(op.wr, op.wr.rows, d, "wr is [E, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dx, rows, d, "dx is [T, d]");
}
template void check(const Dispatch<float>&);
template void check(const Dispatch<bf16>&);
template void check(const Combine<float>&);
template void check(const Combine<bf16>&);
template void check(const CombineBackward<float>&);
template void check(const CombineBackward<bf16>&);
template void check(const DispatchBackward<float>&);
template void check(const DispatchBackward<bf16>&);

}  // namespace lockstep
