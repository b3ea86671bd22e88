// Code that the fp32 and the bf16 backward scan share: addresses of operands and of per-row terms.
#pragma once

#include "kernels/cuda/common/raise_amax.cuh"
#include "kernels/cuda/mamba/scan.cuh"

namespace lockstep {

// The columns of the scratch `rows`: first g_j, h_j, q_j of each head, at the end the terms of
// ddt_bias, dA_log, dD.
enum RowTerm : int { kG = 0, kH = 1, kQ = 2, kDtBias = 0, kALog = 1, kD = 2 };
template <class T>
__device__ float& row_term(const ScanBackward<T>& op, std::int64_t row, RowTerm term, int head) {
  return at(op.rows, row, static_cast<std::int64_t>(term) * op.heads + head);
}

template <class T>
__device__ __forceinline__ void store_rate(const ScanBackward<T>& op, std::int64_t row, int head,
                                           float ddt) {
  const T stored = st<T>(ddt);
  at(op.ddt, row, head) = stored;
  if constexpr (std::is_same_v<T, bf16>) {
    if (op.amax.data != nullptr) raise_amax(op.amax.data, stored);
  }
}
// `column`: the head's of ddt_bias, then of dA_log, then of dD.
template <class T>
__device__ __forceinline__ void store_scan_parameter(const ScanBackward<T>& op, std::int64_t column,
                                                     float g) {
  const Out<float> to[] = {op.ddt_bias, op.da_log, op.dd};
  const Accum<float> totals[] = {op.dt_bias_total, op.a_log_total, op.d_total};
  const std::int64_t which = column / op.heads;
  store_gradient(to[which], totals[which], 0, column % op.heads, g);
}
template <class T>
__device__ float x_of(const ScanBackward<T>& op, const Chunk& chunk, int head, int j, int p) {
  return load(at(op.xbc, chunk.start + j, x_column(op, head) + p));
}
template <class T>
__device__ float dy_of(const ScanBackward<T>& op, const Chunk& chunk, int head, int i, int p) {
  return load(at(op.dy, chunk.start + i, x_column(op, head) + p));
}
// dye_i[p]
template <class T>
__device__ T dye_of(const ScanBackward<T>& op, const Chunk& chunk, int head, int i, int p,
                    const Decay& decay) {
  return st<T>(mul(dy_of(op, chunk, head, i, p), decay.e[i]));
}

}  // namespace lockstep
