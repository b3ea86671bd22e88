// The reductions of arithmetic.md 0.1: the shape of every tree depends on the length alone.
#pragma once

#include "kernels/cuda/common/element.cuh"

namespace lockstep {

inline constexpr unsigned kAllLanes = 0xffffffffu;

// for off=16..1: t[l] = add(t[l], t[l+off]). The exchange by xor gives every lane the bits of lane
// 0, since a + b = b + a.
__device__ __forceinline__ float halving_tree(float t) {
#pragma unroll
  for (int off = kWarp / 2; off > 0; off /= 2) t = add(t, __shfl_xor_sync(kAllLanes, t, off));
  return t;
}
// The caller ends the reduction with add(m, +0).
__device__ __forceinline__ float warp_max(float m) {
#pragma unroll
  for (int off = kWarp / 2; off > 0; off /= 2) m = max(m, __shfl_xor_sync(kAllLanes, m, off));
  return m;
}

// Lane l of a warp holds acc[4l .. 4l+3] of R128's 128 accumulators.
struct Accumulators {
  float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
};
__device__ __forceinline__ float tree128(const Accumulators& a) {
  return halving_tree(add(add(a.acc[0], a.acc[1]), add(a.acc[2], a.acc[3])));
}
// `first` is the thread's first element, `stride` the number of accumulators.
template <class F>
__device__ __forceinline__ Accumulators accumulate(std::int64_t n, std::int64_t first,
                                                   std::int64_t stride, F f) {
  Accumulators a;
  for (std::int64_t e = first; e < n; e += stride) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (e + c < n) a.acc[c] = f(e + c, a.acc[c]);
    }
  }
  return a;
}
// R128 by one whole warp; every lane has the result. f(e, acc) returns the accumulator's next
// value.
template <class F>
__device__ __forceinline__ float r128(std::int64_t n, F f) {
  return add(tree128(accumulate(n, 4 * lane_index(), 128, f)), 0.0f);
}

// R1024 by a block of 256 threads: thread t holds acc[4t .. 4t+3], hence warp w the tree v_w. Every
// thread has the result.
__device__ __forceinline__ float tree1024(const Accumulators& own) {
  __shared__ float v[kWarps];
  const float tree = tree128(own);
  __syncthreads();  // An earlier result may still be read.
  if (lane_index() == 0) v[warp_index()] = tree;
  __syncthreads();
  float s = v[0];
  for (int w = 1; w < kWarps; ++w) s = add(s, v[w]);
  return add(s, 0.0f);
}
template <class F>
__device__ __forceinline__ float r1024(std::int64_t n, F f) {
  return tree1024(accumulate(n, 4 * static_cast<int>(threadIdx.x), 1024, f));
}

// CS over the rows of a microbatch: blocks of 32 physical rows, then the blocks in order. A thread
// block of 256 owns 32 columns, one per lane; its warps take 8 row blocks at a time. The result is
// valid in warp 0. f(i, p) returns the next value of p_b.
inline constexpr std::int64_t kRowBlock = 32;
template <class F>
__device__ __forceinline__ float column_sum(std::int64_t rows, bool active, F f) {
  __shared__ float partial[kWarps][kWarp];
  float s = 0.0f;
  for (std::int64_t group = 0; group < rows; group += kWarps * kRowBlock) {
    const std::int64_t first = group + warp_index() * kRowBlock;
    float p = 0.0f;
    if (active) {
      const std::int64_t last = smaller(rows, first + kRowBlock);
      for (std::int64_t i = first; i < last; ++i) p = f(i, p);
    }
    __syncthreads();  // The previous group has been summed.
    partial[warp_index()][lane_index()] = p;
    __syncthreads();
    if (warp_index() == 0) {
      for (int w = 0; w < kWarps && group + w * kRowBlock < rows; ++w)
        s = add(s, partial[w][lane_index()]);
    }
  }
  return add(s, 0.0f);
}
// Stores an element of a microbatch's gradient, and adds it to the sum over microbatches, if there
// is one.
__device__ __forceinline__ void store_gradient(const Out<float>& to, const Accum<float>& total,
                                               std::int64_t row, std::int64_t col, float g) {
  at(to, row, col) = g;
  if (total.data != nullptr) at(total, row, col) = add(at(total, row, col), g);
}
__device__ __forceinline__ std::int64_t own_column() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarp + lane_index();
}
inline dim3 column_grid(std::int64_t columns, unsigned sums = 1) {
  return dim3(blocks_for(columns, kWarp), sums);
}

// CHAIN32 of a row in shared or global memory with a stored row.
template <class A, class B>
__device__ __forceinline__ float chain32(const A* a, const B* b, int n) {
  float c = 0.0f;
  for (int k = 0; k < n; ++k) c = fma(load(a[k]), load(b[k]), c);
  return add(c, 0.0f);
}

}  // namespace lockstep
