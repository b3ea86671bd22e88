#include "kernels/ops/embedding.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const EmbeddingForward<T>& op) {
  const auto rows = op.y.rows;
  require_shape(op.y, rows, op.y.cols, "y is [T, d]");
  require_shape(op.weight, op.weight.rows, op.y.cols, "weight is [V, d]");
  require_shape(op.tokens, 1, rows, "tokens is [1, T]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.row_number, 1, rows, "row_number is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
}
template <class T>
void check(const EmbeddingBackward<T>& op) {
  const auto rows = op.dy.rows;
  require_shape(op.dy, rows, op.dy.cols, "dy is [T, d]");
  require(!op.dweight != !op.acc, "a weight gradient is either written or accumulated");
  if (op.dweight) require_shape(op.dweight, op.dweight.rows, op.dy.cols, "dweight is [V, d]");
  if (op.acc) require_shape(op.acc, op.acc.rows, op.dy.cols, "acc is [V, d]");
  require_shape(op.tokens, 1, rows, "tokens is [1, T]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.row_number, 1, rows, "row_number is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
}
template void check(const EmbeddingForward<float>&);
template void check(const EmbeddingForward<bf16>&);
template void check(const EmbeddingBackward<float>&);
template void check(const EmbeddingBackward<bf16>&);

}  // namespace lockstep
