#include "kernels/ops/initialize.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const Initialize& op) {
  require_shape(op.w, op.w.rows, op.w.cols, "w is [rows, cols]");
  require(op.kind != Init::conv_weight || op.width > 0, "a convolution has taps");
}

}  // namespace lockstep
