// The products of all experts at once: arithmetic.md 2.4 for each expert and its rows of the
// buffer. Weights of the experts are stacked, [E * out, in].
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// `start`, `rows` and `row_pair` say which rows of the buffer are whose; see ExpertLayout in
// kernels/moe/dispatch.h.

// y[r, o] = st(DOT over k of x[r, k], w_e[o, k]) for the rows of expert e; padding rows +0.
template <class T>
struct ExpertForward {
  static constexpr const char* kName = "expert_forward";
  In<T> x;                    // [R, in]
  In<T> w;                    // [E * out, in]
  In<std::int32_t> start;     // [1, E]
  In<std::int32_t> rows;      // [1, E]
  In<std::int32_t> row_pair;  // [1, R]
  Out<T> y;                   // [R, out]
};
// dx[r, k] = st(DOT over o of dy[r, o], w_e[o, k]); padding rows +0.
template <class T>
struct ExpertInputGradient {
  static constexpr const char* kName = "expert_input_gradient";
  In<T> dy;  // [R, out]
  In<T> w;   // [E * out, in]
  In<std::int32_t> start;
  In<std::int32_t> rows;
  In<std::int32_t> row_pair;
  Out<T> dx;  // [R, in]
};
// dw_e[o, k] = DOT over the expert's rows of dy[r, o], x[r, k], order and groups from its first
// row; no rows: +0.
template <class T>
struct ExpertWeightGradient {
  static constexpr const char* kName = "expert_weight_gradient";
  In<T> dy;  // [R, out]
  In<T> x;   // [R, in]
  In<std::int32_t> start;
  In<std::int32_t> rows;
  Out<float> dw;  // [E * out, in]
};

template <class T>
void check(const ExpertForward<T>& op);
template <class T>
void run(HostQueue, const ExpertForward<T>& op);
template <class T>
void run(CudaQueue, const ExpertForward<T>& op);
template <class T>
void check(const ExpertInputGradient<T>& op);
template <class T>
void run(HostQueue, const ExpertInputGradient<T>& op);
template <class T>
void run(CudaQueue, const ExpertInputGradient<T>& op);
template <class T>
void check(const ExpertWeightGradient<T>& op);
template <class T>
void run(HostQueue, const ExpertWeightGradient<T>& op);
template <class T>
void run(CudaQueue, const ExpertWeightGradient<T>& op);

}  // namespace lockstep
