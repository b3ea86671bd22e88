// Code that fp32 and bf16 attention share: where the heads of a fused row lie.
#pragma once

#include "kernels/cuda/common/reduce.cuh"
#include "kernels/ops/attention.h"

namespace lockstep {

inline constexpr int kHeadDim = 128;  // The largest head.

template <class Op>
__device__ std::int64_t q_column(const Op& op, int head) {
  return static_cast<std::int64_t>(head) * op.head_dim;
}
template <class Op>
__device__ std::int64_t k_column(const Op& op, int kv_head) {
  return static_cast<std::int64_t>(op.heads + kv_head) * op.head_dim;
}
template <class Op>
__device__ std::int64_t v_column(const Op& op, int kv_head) {
  return static_cast<std::int64_t>(op.heads + op.kv_heads + kv_head) * op.head_dim;
}
__device__ float scale_of(int head_dim) { return div(1.0f, sqrt(static_cast<float>(head_dim))); }

}  // namespace lockstep
