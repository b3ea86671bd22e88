#include "kernels/ops/cross_entropy.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class T>
void check(const CrossEntropyForward<T>& op) {
  const auto rows = op.logits.rows;
  require_shape(op.logits, rows, op.logits.cols, "logits is [T, V]");
  require_shape(op.targets, 1, rows, "targets is [1, T]");
  require_shape(op.loss, 1, rows, "loss is [1, T]");
  require_shape(op.maximum, 1, rows, "maximum is [1, T]");
  require_shape(op.sum, 1, rows, "sum is [1, T]");
}
template <class T>
void check(const CrossEntropyBackward<T>& op) {
  const auto rows = op.logits.rows;
  require_shape(op.logits, rows, op.logits.cols, "logits is [T, V]");
  require_shape(op.targets, 1, rows, "targets is [1, T]");
  require_shape(op.maximum, 1, rows, "maximum is [1, T]");
  require_shape(op.sum, 1, rows, "sum is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.dlogits, rows, op.logits.cols, "dlogits is [T, V]");
}
void check(const MicrobatchLoss& op) {
  require_shape(op.loss, 1, op.loss.cols, "loss is [1, T]");
  require_shape(op.state, 1, 1, "state is [1, 1]");
  require_shape(op.total, 1, 1, "total is [1, 1]");
}
template void check(const CrossEntropyForward<float>&);
template void check(const CrossEntropyForward<bf16>&);
template void check(const CrossEntropyBackward<float>&);
template void check(const CrossEntropyBackward<bf16>&);

}  // namespace lockstep
