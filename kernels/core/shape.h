// Checks that every op applies to its operands: an operand is present, has the given shape, and its
// rows do not overlap.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/require.h"

namespace lockstep {

template <class T, Access kAccess>
void require_shape(const Operand<T, kAccess>& x, std::int64_t rows, std::int64_t cols,
                   const char* what, std::source_location at = std::source_location::current()) {
  require(x.data != nullptr, what, at);
  require(x.rows == rows && x.cols == cols, what, at);
  require(rows > 0 && cols > 0 && (rows == 1 || x.pitch >= cols), what, at);
}

// The amax of what an op stores, which has one in bf16: of all rows, or of each of their segments.
template <class T, class Op>
void require_amax(const Op& op) {
  if constexpr (requires { op.start; }) {
    require(!op.start == !op.rows && (op.amax || !op.start), "segments have starts, rows, amaxes");
    if (op.start) {
      require_shape(op.start, 1, op.amax.cols, "start is [1, S]");
      require_shape(op.rows, 1, op.amax.cols, "rows is [1, S]");
    }
  }
  if (!op.amax) return;
  require((std::is_same_v<T, bf16>), "the amax is that of bf16 numbers");
  const bool in_segments = [&] {
    if constexpr (requires { op.start; }) return static_cast<bool>(op.start);
    return false;
  }();
  require_shape(op.amax, 1, in_segments ? op.amax.cols : 1, "amax is [1, 1], or [1, S]");
}

}  // namespace lockstep
