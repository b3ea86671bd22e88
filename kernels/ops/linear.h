// Linear layers without bias: arithmetic.md 2.4. Weights are [out, in] row-major. A library that
// computes a bf16 product on a GPU may use the workspace; without one it is not asked.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// Bytes of a workspace: one a stream, and one a branch of a graph that runs beside others. The
// algorithms that sum each element in one chain need room for a counter or two.
inline constexpr std::int64_t kProductWorkspace = 4096;

// y[i, o] = st(DOT over k of x[i, k], w[o, k]).
template <class T>
struct LinearForward {
  static constexpr const char* kName = "linear_forward";
  In<T> x;   // [T, in]
  In<T> w;   // [out, in]
  Out<T> y;  // [T, out]
  Scratch<std::uint8_t> workspace = {};
};
// dx[i, k] = st(DOT over o of dy[i, o], w[o, k]).
template <class T>
struct LinearInputGradient {
  static constexpr const char* kName = "linear_input_gradient";
  In<T> dy;   // [T, out]
  In<T> w;    // [out, in]
  Out<T> dx;  // [T, in]
  Scratch<std::uint8_t> workspace = {};
};
// dw[o, k] = DOT over physical rows i of dy[i, o], x[i, k]: the microbatch's gradient, from +0.
// Either it is written to dw, or there is no dw and the accumulator takes it: acc = add(acc, dw),
// the one add of arithmetic.md 1.
template <class T>
struct LinearWeightGradient {
  static constexpr const char* kName = "linear_weight_gradient";
  In<T> dy;               // [T, out]
  In<T> x;                // [T, in]
  Out<float> dw = {};     // [out, in] or absent.
  Accum<float> acc = {};  // [out, in] or absent.
  Scratch<std::uint8_t> workspace = {};
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
