// DOT8 of the tensor core by itself, in all pairs of types, for calibration: what the machine
// gives, to be held against the model.
#pragma once

#include "kernels/core/fp8.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// d[i, j] = DOT8(a[i, .], b[j, .], K), K a multiple of 16.
template <class A, class B>
struct Fp8Dots {
  static constexpr const char* kName = "fp8_dots";
  In<A> a;       // [m, K]
  In<B> b;       // [n, K]
  Out<float> d;  // [m, n]
};
template <class A, class B>
void check(const Fp8Dots<A, B>& op);
template <class A, class B>
void run(HostQueue, const Fp8Dots<A, B>& op);
template <class A, class B>
void run(CudaQueue, const Fp8Dots<A, B>& op);

}  // namespace lockstep
