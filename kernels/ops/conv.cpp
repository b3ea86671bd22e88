#include "kernels/ops/conv.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const ConvForward<T>& op) {
  const auto rows = op.x.rows, channels = op.x.cols;
  require_shape(op.x, rows, channels, "x is [T, channels]");
  require_shape(op.weight, channels, op.weight.cols, "weight is [channels, width]");
  require_shape(op.bias, 1, channels, "bias is [1, channels]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.y, rows, channels, "y is [T, channels]");
}
template <class T>
void check(const ConvBackward<T>& op) {
  const auto rows = op.x.rows, channels = op.x.cols;
  require_shape(op.x, rows, channels, "x is [T, channels]");
  require_shape(op.weight, channels, op.weight.cols, "weight is [channels, width]");
  require_shape(op.bias, 1, channels, "bias is [1, channels]");
  require_shape(op.dy, rows, channels, "dy is [T, channels]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.dpre, rows, channels, "dpre is [T, channels]");
  require_shape(op.dx, rows, channels, "dx is [T, channels]");
  require_shape(op.dweight, channels, op.weight.cols, "dweight is [channels, width]");
  require_shape(op.dbias, 1, channels, "dbias is [1, channels]");
  if (op.weight_total)
    require_shape(op.weight_total, channels, op.weight.cols, "weight_total is [channels, width]");
  if (op.bias_total) require_shape(op.bias_total, 1, channels, "bias_total is [1, channels]");
  require_amax<T>(op);
}
template void check(const ConvForward<float>&);
template void check(const ConvForward<bf16>&);
template void check(const ConvBackward<float>&);
template void check(const ConvBackward<bf16>&);

}  // namespace lockstep
