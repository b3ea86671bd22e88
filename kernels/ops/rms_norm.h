// RMSNorm: arithmetic.md 2.2 (and the ONE store of the residual gradient of 2.3).
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// y = st(x * rstd * gain), rstd = 1 / sqrt(mean(x^2) + eps).
template <class T>
struct RmsNormForward {
  static constexpr const char* kName = "rms_norm_forward";
  In<T> x;                        // [T, d]
  In<float> gain;                 // [1, d]
  In<std::int32_t> row_document;  // [1, T]
  Out<T> y;                       // [T, d]
  Out<float> rstd;                // [1, T], kept for the backward pass.
  float eps = 1e-5f;
  // [1, 1] or absent: rises to the words of what is stored in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
};
// dx = st(add(dresidual, dx of 2.2)), or st(dx of 2.2) without a residual (final norm).
template <class T>
struct RmsNormBackward {
  static constexpr const char* kName = "rms_norm_backward";
  In<T> x;                        // [T, d]
  In<float> rstd;                 // [1, T]
  In<float> gain;                 // [1, d]
  In<T> dy;                       // [T, d]
  In<T> dresidual;                // [T, d] or absent.
  In<std::int32_t> row_document;  // [1, T]
  Out<T> dx;                      // [T, d]
  Out<float> dgain;               // [1, d]: CS over the physical rows.
  Scratch<float> partials;        // [ceil(T / 32), d]: partial sums of dgain.
  // [1, 1] or absent: rises to the words of dx in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, d] or absent: total = add(total, dgain), the one add of arithmetic.md 1.
  Accum<float> total = {};
};
template <class T>
void check(const RmsNormForward<T>& op);
template <class T>
void run(HostQueue, const RmsNormForward<T>& op);
template <class T>
void run(CudaQueue, const RmsNormForward<T>& op);
template <class T>
void check(const RmsNormBackward<T>& op);
template <class T>
void run(HostQueue, const RmsNormBackward<T>& op);
template <class T>
void run(CudaQueue, const RmsNormBackward<T>& op);

}  // namespace lockstep
