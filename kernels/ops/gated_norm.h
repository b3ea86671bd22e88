// Gated grouped RMSNorm, norm after the gate: arithmetic.md 2.9.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

template <class T>
struct GatedNormForward {
  static constexpr const char* kName = "gated_norm_forward";
  In<T> y;                        // [T, d_inner]: output of the scan.
  In<T> z;                        // [T, d_inner]: gate columns of in_proj.
  In<float> gain;                 // [1, d_inner]
  In<std::int32_t> row_document;  // [1, T]
  Out<T> o;                       // [T, d_inner]
  Out<float> rstd;                // [T, groups]
  std::int32_t groups = 1;
  float eps = 1e-5f;
  // [1, 1] or absent: rises to the words of what is stored in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
};
template <class T>
struct GatedNormBackward {
  static constexpr const char* kName = "gated_norm_backward";
  In<T> y;
  In<T> z;
  In<float> gain;
  In<float> rstd;
  In<T> dout;  // [T, d_inner]
  In<std::int32_t> row_document;
  Out<T> dy;         // [T, d_inner]
  Out<T> dz;         // [T, d_inner]
  Out<float> dgain;  // [1, d_inner]
  std::int32_t groups = 1;
  Scratch<float> partials;  // [ceil(T / 32), d_inner]: partial sums of dgain.
  // [1, 1] or absent: rises to the words of dz in rows in use (fp8.h). bf16 alone.
  Accum<std::uint32_t> amax = {};
  // [1, d_inner] or absent: total = add(total, dgain), the one add of arithmetic.md 1.
  Accum<float> total = {};
};
template <class T>
void check(const GatedNormForward<T>& op);
template <class T>
void run(HostQueue, const GatedNormForward<T>& op);
template <class T>
void run(CudaQueue, const GatedNormForward<T>& op);
template <class T>
void check(const GatedNormBackward<T>& op);
template <class T>
void run(HostQueue, const GatedNormBackward<T>& op);
template <class T>
void run(CudaQueue, const GatedNormBackward<T>& op);

}  // namespace lockstep
