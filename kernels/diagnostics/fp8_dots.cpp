#include "kernels/diagnostics/fp8_dots.h"

#include "kernels/core/shape.h"

namespace lockstep {

template <class A, class B>
void check(const Fp8Dots<A, B>& op) {
  require_shape(op.a, op.a.rows, op.a.cols, "a is [m, K]");
  require_shape(op.b, op.b.rows, op.a.cols, "b is [n, K]");
  require_shape(op.d, op.a.rows, op.b.rows, "d is [m, n]");
  require(op.a.cols % kFp8Align == 0 && op.a.pitch % kFp8Align == 0 && op.b.pitch % kFp8Align == 0,
          "rows of codes and their pitch are multiples of 16");
}
template void check(const Fp8Dots<e4m3, e4m3>&);
template void check(const Fp8Dots<e4m3, e5m2>&);
template void check(const Fp8Dots<e5m2, e4m3>&);
template void check(const Fp8Dots<e5m2, e5m2>&);

}  // namespace lockstep
