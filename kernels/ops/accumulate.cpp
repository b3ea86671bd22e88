#include "kernels/ops/accumulate.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const AccumulateGradient& op) {
  require_shape(op.g, op.g.rows, op.acc.cols, "g is as wide as acc");
  require(op.acc.rows == 0 ? op.g.rows == 0 : op.g.rows > 0 && op.g.rows % op.acc.rows == 0,
          "g is terms * rows high");
  require_shape(op.acc, op.acc.rows, op.acc.cols, "acc is [rows, cols]");
}
void check(const ZeroGradient& op) {
  require_shape(op.acc, op.acc.rows, op.acc.cols, "acc is [rows, cols]");
}

}  // namespace lockstep
