#include "kernels/ops/residual.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const ResidualForward<T>& op) {
  const auto rows = op.out.rows, d = op.out.cols;
  require_shape(op.residual, rows, d, "residual is [T, d]");
  require_shape(op.y, rows, d, "y is [T, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.row_number, 1, rows, "row_number is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.out, rows, d, "out is [T, d]");
}
template <class T>
void check(const ResidualBackward<T>& op) {
  const auto rows = op.dy.rows, d = op.dy.cols;
  require_shape(op.dout, rows, d, "dout is [T, d]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.row_number, 1, rows, "row_number is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.dy, rows, d, "dy is [T, d]");
  require_amax<T>(op);
}
template void check(const ResidualForward<float>&);
template void check(const ResidualForward<bf16>&);
template void check(const ResidualBackward<float>&);
template void check(const ResidualBackward<bf16>&);

}  // namespace lockstep
