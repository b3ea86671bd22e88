#include "kernels/ops/linear.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const LinearForward<T>& op) {
  require_shape(op.x, op.x.rows, op.x.cols, "x is [T, in]");
  require_shape(op.w, op.w.rows, op.x.cols, "w is [out, in]");
  require_shape(op.y, op.x.rows, op.w.rows, "y is [T, out]");
}
template <class T>
void check(const LinearInputGradient<T>& op) {
  require_shape(op.dy, op.dy.rows, op.dy.cols, "dy is [T, out]");
  require_shape(op.w, op.dy.cols, op.w.cols, "w is [out, in]");
  require_shape(op.dx, op.dy.rows, op.w.cols, "dx is [T, in]");
}
template <class T>
void check(const LinearWeightGradient<T>& op) {
  require_shape(op.dy, op.dy.rows, op.dy.cols, "dy is [T, out]");
  require_shape(op.x, op.dy.rows, op.x.cols, "x is [T, in]");
  require(!op.dw != !op.acc, "a weight gradient is either written or accumulated");
  if (op.dw) require_shape(op.dw, op.dy.cols, op.x.cols, "dw is [out, in]");
  if (op.acc) require_shape(op.acc, op.dy.cols, op.x.cols, "acc is [out, in]");
}
template void check(const LinearForward<float>&);
template void check(const LinearForward<bf16>&);
template void check(const LinearInputGradient<float>&);
template void check(const LinearInputGradient<bf16>&);
template void check(const LinearWeightGradient<float>&);
template void check(const LinearWeightGradient<bf16>&);

}  // namespace lockstep
