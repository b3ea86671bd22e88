#include "kernels/ops/gated_norm.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const GatedNormForward<T>& op) {
  const auto rows = op.y.rows, d = op.y.cols;
  require(op.groups > 0 && d % op.groups == 0, "d_inner is a multiple of groups");
  require_shape(op.y, rows, d, "y is [T, d_inner]");
  require_shape(op.z, rows, d, "z is [T, d_inner]");
  require_shape(op.gain, 1, d, "gain is [1, d_inner]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.o, rows, d, "o is [T, d_inner]");
  require_shape(op.rstd, rows, op.groups, "rstd is [T, groups]");
  require(op.eps >= 0, "eps >= 0");  // A tiny one is zero as a float.
  require_amax<T>(op);
}
template <class T>
void check(const GatedNormBackward<T>& op) {
  const auto rows = op.y.rows, d = op.y.cols;
  require(op.groups > 0 && d % op.groups == 0, "d_inner is a multiple of groups");
  require_shape(op.y, rows, d, "y is [T, d_inner]");
  require_shape(op.z, rows, d, "z is [T, d_inner]");
  require_shape(op.gain, 1, d, "gain is [1, d_inner]");
  require_shape(op.rstd, rows, op.groups, "rstd is [T, groups]");
  require_shape(op.dout, rows, d, "dout is [T, d_inner]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dy, rows, d, "dy is [T, d_inner]");
  require_shape(op.dz, rows, d, "dz is [T, d_inner]");
  require_shape(op.dgain, 1, d, "dgain is [1, d_inner]");
  if (op.total) require_shape(op.total, 1, d, "total is [1, d_inner]");
  require_shape(op.partials, (rows + 31) / 32, d, "partials is [ceil(T / 32), d_inner]");
  require_amax<T>(op);
}
template void check(const GatedNormForward<float>&);
template void check(const GatedNormForward<bf16>&);
template void check(const GatedNormBackward<float>&);
template void check(const GatedNormBackward<bf16>&);

}  // namespace lockstep
