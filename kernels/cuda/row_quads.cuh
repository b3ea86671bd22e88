// Rows of bf16 in the order of R128: lane l of a warp holds elements 4l .. 4l + 3 of every 128, loaded once.
#pragma once

#include "kernels/cuda/eights.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lockstep {

struct alignas(8) Quad {
  std::uint32_t pairs[2];

  // Element c of the four.
  __device__ __forceinline__ float operator[](int c) const {
    return from_bits(c % 2 == 0 ? pairs[c / 2] << 16 : pairs[c / 2] & 0xffff0000u);
  }
};
__device__ __forceinline__ Quad quad(const float (&x)[4]) {
  return {{stored_pair(x[0], x[1]), stored_pair(x[2], x[3])}};
}

// A row of at most 128 kSteps elements, a multiple of 4, at a multiple of 8 bytes. Elements past `size` are +0.
template <int kSteps>
struct RowQuads {
  Quad step[kSteps];

  __device__ __forceinline__ void load(const bf16* row, int size) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int k = 128 * s + 4 * lane_index();
      step[s] = k < size ? *reinterpret_cast<const Quad*>(row + k) : Quad{};
    }
  }
};
// f(step, first element) for the lane's quads of a row.
template <int kSteps, class F>
__device__ __forceinline__ void each_quad(int size, F f) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int k = 128 * s + 4 * lane_index();
    if (k < size) f(s, k);
  }
}
__device__ __forceinline__ float4 quad_of(const float* from, int k) {
  return *reinterpret_cast<const float4*>(from + k);
}
__device__ __forceinline__ float part(const float4& q, int c) {
  return c == 0 ? q.x : c == 1 ? q.y : c == 2 ? q.z : q.w;
}

// The last step of CS: the partial sums of 32 rows each, in order.
static __global__ void __launch_bounds__(kWarp) fold_partials(Scratch<float> partials, Out<float> sums) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  if (column >= sums.cols) return;
  float s = 0.0f;
#pragma unroll 32
  for (std::int64_t block = 0; block < partials.rows; ++block) s = add(s, at(partials, block, column));
  at(sums, 0, column) = add(s, 0.0f);
}
inline void fold(CudaQueue queue, const Scratch<float>& partials, const Out<float>& sums) {
  launch(queue, dim3(blocks_for(sums.cols, kWarp)), dim3(kWarp), fold_partials, partials, sums);
}

}  // namespace lockstep
