#include "kernels/diagnostics/digest.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const Digest& op) {
  require_shape(op.values, op.values.rows, op.values.cols, "values is [rows, cols]");
  require_shape(op.sums, 1, 2, "sums is [1, 2]");
}

}  // namespace lockstep
