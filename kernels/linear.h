// Linear layers without bias: arithmetic.md 2.4. Weights are [out, in] row-major.
#pragma once

#include "kernels/contract.h"
#include "kernels/operand.h"
#include "kernels/queue.h"

namespace lockstep {

// y[i, o] = st(DOT over k of x[i, k], w[o, k]).
template <class T>
struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  In<T> x;   // [T, in]
  In<T> w;   // [out, in]
  Out<T> y;  // [T, out]
};
// dx[i, k] = st(DOT over o of dy[i, o], w[o, k]).
template <class T>
struct LinearInputGradient {
  static constexpr const char* kName = "linear_input_gradient";
  In<T> dy;   // [T, out]
  In<T> w;    // [out, in]
  Out<T> dx;  // [T, in]
};
// dw[o, k] = DOT over physical rows i of dy[i, o], x[i, k]: the microbatch's gradient, from +0.
template <class T>
struct LinearWeightGradient {
  static constexpr const char* kName = "linear_weight_gradient";
  In<T> dy;       // [T, out]
  In<T> x;        // [T, in]
  Out<float> dw;  // [out, in]
};
template <class T>
void check(const LinearForward<T>& op);
template <class T>
void run(HostQueue, const LinearForward<T>& op);
template <class T>
void run(CudaQueue, const LinearForward<T>& op);
template <class T>
void check(const LinearInputGradient<T>& op);
template <class T>
void run(HostQueue, const LinearInputGradient<T>& op);
template <class T>
void run(CudaQueue, const LinearInputGradient<T>& op);
template <class T>
void check(const LinearWeightGradient<T>& op);
template <class T>
void run(HostQueue, const LinearWeightGradient<T>& op);
template <class T>
void run(CudaQueue, const LinearWeightGradient<T>& op);

}  // namespace lockstep
