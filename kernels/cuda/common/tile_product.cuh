// Chains of bf16 products over k for a 64 x 64 tile, by a block of 256 threads. Factors are
// computed element by element: simple rather than fast.
#pragma once

#include "kernels/cuda/common/fragment.cuh"

namespace lockstep {

inline constexpr int kSide = 64;        // Rows and columns of a tile.
inline constexpr int kStageDepth = 32;  // Elements of k in shared memory at a time.
inline constexpr int kStagePitch = kStageDepth + 8;
inline constexpr int kOwnColumns = 32;  // A warp owns 16 x 32 results.

struct Stage {
  alignas(16) bf16 a[kSide][kStagePitch];
  alignas(16) bf16 b[kSide][kStagePitch];
};

// A factor of `size` rows, given by element(m, k); rows past them are +0. Neighbouring threads take
// neighbouring k if along_k, else neighbouring m.
template <bool along_k, class F>
struct TileFactor {
  int size;
  F element;
  __device__ __forceinline__ void fill(bf16 (&tile)[kSide][kStagePitch], int k0, int depth) const {
    for (int e = static_cast<int>(threadIdx.x); e < kSide * kStageDepth; e += kThreads) {
      const int k = along_k ? e % kStageDepth : e / kSide;
      const int m = along_k ? e / kStageDepth : e % kSide;
      tile[m][k] = m < size && k0 + k < depth ? element(m, k0 + k) : bf16{0};
    }
  }
};
template <class F>
__device__ TileFactor<true, F> along_k(int size, F element) {
  return {size, element};
}
template <class F>
__device__ TileFactor<false, F> across_k(int size, F element) {
  return {size, element};
}

// A thread's share of a tile.
struct TileSum {
  float c[kOwnColumns / 8][4] = {};

  // Calls f(m, n, value) for each element of the tile that the thread owns.
  template <class F>
  __device__ __forceinline__ void each(F f) {
    const int m0 = warp_index() / 2 * 16 + lane_group();
    const int n0 = warp_index() % 2 * kOwnColumns + 2 * lane_place();
#pragma unroll
    for (int x = 0; x < kOwnColumns / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) f(m0 + 8 * (e / 2), n0 + 8 * x + e % 2, c[x][e]);
    }
  }
};

// Continues the chains with a(m, k) * b(n, k), k = 0 .. depth - 1 ascending, padded with zeros to a
// k16 group. Called by the whole block; when it returns, `a` and `b` have been read.
template <class A, class B>
__device__ __forceinline__ void extend(TileSum& sum, Stage& stage, int depth, const A& a,
                                       const B& b) {
  const AlongK<kStagePitch> a_at{stage.a};
  const AlongK<kStagePitch> b_at{stage.b};
  for (int k0 = 0; k0 < depth; k0 += kStageDepth) {
    __syncthreads();  // The previous stage has been read, and the factors' operands are written.
    a.fill(stage.a, k0, depth);
    b.fill(stage.b, k0, depth);
    __syncthreads();
    for (int k = 0; k < kStageDepth && k0 + k < depth; k += kStep) {
      std::uint32_t a_step[4];
      take_a(a_step, a_at, warp_index() / 2 * 16, k);
#pragma unroll
      for (int x = 0; x < kOwnColumns / 8; ++x) {
        std::uint32_t b_step[2];
        take_b(b_step, b_at, warp_index() % 2 * kOwnColumns + 8 * x, k);
        fda16(sum.c[x], a_step, b_step);
      }
    }
  }
}

}  // namespace lockstep
