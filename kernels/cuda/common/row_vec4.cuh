// Rows of bf16 in the order of R128: lane l of a warp holds elements 4l .. 4l + 3 of every 128,
// loaded once.
#pragma once

#include "kernels/cuda/common/beside.h"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/common/vec8.cuh"

namespace lockstep {

// Row `row` of a view from column `c` on. Rows and pitches fit 32 bits, so that one instruction
// multiplies them.
template <class T, Access kAccess>
__device__ __forceinline__ auto* row_at(const Operand<T, kAccess>& operand, int row, int c) {
  return operand.data + static_cast<std::int64_t>(row) * static_cast<int>(operand.pitch) + c;
}

struct alignas(8) Vec4 {
  std::uint32_t pairs[2];

  // Element c of the four.
  __device__ __forceinline__ float operator[](int c) const {
    return from_bits(c % 2 == 0 ? pairs[c / 2] << 16 : pairs[c / 2] & 0xffff0000u);
  }
  __device__ __forceinline__ void store(bf16* to) const {
    store_8(to, pairs[0], pairs[1]);
  }  // To global memory.
};
__device__ __forceinline__ Vec4 vec4(const float (&x)[4]) {
  return {{stored_pair(x[0], x[1]), stored_pair(x[2], x[3])}};
}

// A row of at most 128 kSteps elements, a multiple of 4, at a multiple of 8 bytes. Elements past
// `size` are +0. kFull: none are, so that loads need no test and steps can interleave.
template <int kSteps, bool kFull>
struct RowVec4 {
  Vec4 step[kSteps];

  __device__ __forceinline__ void load(const bf16* row, int size) {
    const int lane = 4 * lane_index();
    const bf16* const own = row + lane;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      step[s] =
          kFull || 128 * s + lane < size ? *reinterpret_cast<const Vec4*>(own + 128 * s) : Vec4{};
    }
  }
};
// Calls f(step, first element) for the lane's quads of a row.
template <int kSteps, bool kFull, class F>
__device__ __forceinline__ void each_vec4(int size, F f) {
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int k = 128 * s + 4 * lane_index();
    if (kFull || k < size) f(s, k);
  }
}
// Calls f<kSteps, kFull>() with the fewest of three numbers of steps that hold a row of `size`
// elements.
template <int kShort, int kMiddle, int kLong, class F>
void with_steps(std::int64_t size, F f) {
  const auto run = [&]<int kSteps>() {
    size == 128 * kSteps ? f.template operator()<kSteps, true>()
                         : f.template operator()<kSteps, false>();
  };
  if (size <= 128 * kShort) return run.template operator()<kShort>();
  if (size <= 128 * kMiddle) return run.template operator()<kMiddle>();
  run.template operator()<kLong>();
}
__device__ __forceinline__ float4 vec4_of(const float* from, int k) {
  return *reinterpret_cast<const float4*>(from + k);
}
__device__ __forceinline__ float part(const float4& q, int c) {
  return c == 0 ? q.x : c == 1 ? q.y : c == 2 ? q.z : q.w;
}

// Zeroes the eights of a row in shared memory that the lane itself copied.
__device__ __forceinline__ void clear_own_vec8(bf16* row, int size) {
  for (int k = kVec8 * lane_index(); k < size; k += kVec8 * kWarp)
    *reinterpret_cast<uint4*>(row + k) = uint4{};
}

// The last step of CS: s = add(s, p_b) over the row blocks b, then add(s, +0). A block takes few
// columns, so that there are many blocks. All its threads read the partial sums; those of one row
// add.
inline constexpr int kFoldThreads = 512, kFoldColumns = 8;
static __global__ void __launch_bounds__(kFoldThreads)
    fold_partials(Scratch<float> partials, Out<float> sums, Accum<float> total) {
  pdl_begin();
  constexpr int kTerms = 512, kTogether = kFoldThreads / kFoldColumns;
  __shared__ float terms[kTerms][kFoldColumns];
  const int c = static_cast<int>(threadIdx.x) % kFoldColumns,
            first_row = static_cast<int>(threadIdx.x) / kFoldColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kFoldColumns + c;
  const bool inside = column < sums.cols;
  float s = 0.0f;
  for (std::int64_t first = 0; first < partials.rows; first += kTerms) {
    const int here = static_cast<int>(smaller(kTerms, partials.rows - first));
    __syncthreads();  // The previous terms have been added.
#pragma unroll
    for (int k = first_row; k < kTerms; k += kTogether) {
      if (k < here && inside) terms[k][c] = at(partials, first + k, column);
    }
    __syncthreads();
    if (first_row != 0) continue;
#pragma unroll 16
    for (int k = 0; k < here; ++k) s = add(s, terms[k][c]);
  }
  if (inside && first_row == 0) store_gradient(sums, total, 0, column, add(s, 0.0f));
}
inline void fold(CudaQueue queue, const Scratch<float>& partials, const Out<float>& sums,
                 const Accum<float>& total) {
  launch_beside(
      [&] {
        launch(queue, dim3(blocks_for(sums.cols, kFoldColumns)), dim3(kFoldThreads), kPdl,
               fold_partials, partials, sums, total);
      },
      partials, sums, total);
}

}  // namespace lockstep
