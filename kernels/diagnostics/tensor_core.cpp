#include "kernels/diagnostics/tensor_core.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const TensorCoreDots& op) {
  const std::int64_t tiles = op.a.rows / kDotRows;
  require_shape(op.a, tiles * kDotRows, kDotDepth, "a is [16 tiles, 16]");
  require_shape(op.b, tiles * kDotColumns, kDotDepth, "b is [8 tiles, 16]");
  require_shape(op.c, tiles * kDotRows, kDotColumns, "c is [16 tiles, 8]");
  require_shape(op.d, tiles * kDotRows, kDotColumns, "d is [16 tiles, 8]");
}

}  // namespace lockstep
