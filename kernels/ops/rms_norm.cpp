#include "kernels/ops/rms_norm.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const RmsNormForward<T>& op) {
  const auto rows = op.x.rows, d = op.x.cols;
  require_shape(op.x, rows, d, "x is [T, d]");
  require_shape(op.gain, 1, d, "gain is [1, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.y, rows, d, "y is [T, d]");
  require_shape(op.rstd, 1, rows, "rstd is [1, T]");
  require(op.eps >= 0, "eps >= 0");  // A tiny one is zero as a float.
  require_amax<T>(op);
}
template <class T>
void check(const RmsNormBackward<T>& op) {
  const auto rows = op.x.rows, d = op.x.cols;
  require_shape(op.x, rows, d, "x is [T, d]");
  require_shape(op.rstd, 1, rows, "rstd is [1, T]");
  require_shape(op.gain, 1, d, "gain is [1, d]");
  require_shape(op.dy, rows, d, "dy is [T, d]");
  if (op.dresidual) require_shape(op.dresidual, rows, d, "dresidual is [T, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dx, rows, d, "dx is [T, d]");
  require_shape(op.dgain, 1, d, "dgain is [1, d]");
  if (op.total) require_shape(op.total, 1, d, "total is [1, d]");
  require_shape(op.partials, (rows + 31) / 32, d, "partials is [ceil(T / 32), d]");
  require_amax<T>(op);
}
template void check(const RmsNormForward<float>&);
template void check(const RmsNormForward<bf16>&);
template void check(const RmsNormBackward<float>&);
template void check(const RmsNormBackward<bf16>&);

}  // namespace lockstep
