#include "kernels/ops/activation.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const ActivationForward<T>& op) {
  const auto rows = op.a.rows, width = op.a.cols;
  require_shape(op.a, rows, width, "a is [T, F]");
  require_shape(op.h, rows, op.kind == Activation::swiglu ? 2 * width : width,
                "h is [T, F], or [T, 2F] for SwiGLU");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_amax<T>(op);
}
template <class T>
void check(const ActivationBackward<T>& op) {
  const auto rows = op.da.rows, width = op.da.cols;
  require_shape(op.da, rows, width, "da is [T, F]");
  require_shape(op.h, rows, op.kind == Activation::swiglu ? 2 * width : width,
                "h is [T, F], or [T, 2F] for SwiGLU");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.dh, rows, op.h.cols, "dh is shaped as h");
  require_amax<T>(op);
}
template void check(const ActivationForward<float>&);
template void check(const ActivationForward<bf16>&);
template void check(const ActivationBackward<float>&);
template void check(const ActivationBackward<bf16>&);

}  // namespace lockstep
