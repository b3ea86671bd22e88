// 128 x 128 sums DOT8 of a block. Each of two warpgroups has 64 rows: a run of 128 places is four
// k32 steps from zero in one accumulator, which is then added to another in fp32.
#pragma once

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/cuda/common/wgmma_fp8.cuh"

namespace lockstep {

inline constexpr int kFp8Tile = 128;    // Rows and columns of a block's tile.
inline constexpr int kFp8Stages = 4;    // Runs in shared memory.
inline constexpr int kFp8OwnRows = 64;  // Per warpgroup.
static_assert(kThreads == 2 * kWarp * 4 && kFp8Tile == 2 * kFp8OwnRows);
static_assert(kFp8Run == static_cast<int>(kPanelRow), "a panel's row is one run");

struct Fp8Shared {
  static constexpr int kPanel = kFp8Tile * kFp8Run;  // Bytes.
  alignas(1024) unsigned char a[kFp8Stages][kPanel];
  alignas(1024) unsigned char b[kFp8Stages][kPanel];
};

// Rows of a factor: the first `rows` of 128, `depth` codes each, a multiple of 16.
template <class F>
struct Fp8Rows {
  const F* data;
  std::int64_t pitch;
  std::int64_t rows;
  std::int64_t depth;

  // Starts the copy of the run from k0 on; code 00 where there is no row or no place.
  __device__ __forceinline__ void copy(std::uint32_t panel, std::int64_t k0) const {
    constexpr int kChunks = kFp8Run / 16;
#pragma unroll
    for (int x = 0; x < kFp8Tile * kChunks / kThreads; ++x) {
      const int e = static_cast<int>(threadIdx.x) + x * kThreads;
      const int row = e / kChunks, chunk = e % kChunks;
      const bool inside = row < rows && k0 + 16 * chunk < depth;
      copy_16(panel + panel_place(row, chunk), inside ? data + row * pitch + k0 + 16 * chunk : data,
              inside);
    }
  }
};

// total[x][e] of a thread: DOT8 of the tile's row 64 w + 16 v + g + 8 (e / 2) and column 8x + 2p +
// e % 2, for warp v of warpgroup w with lane group g and place p.
struct Fp8Sums {
  float total[16][4] = {};

  template <class A, class B>
  __device__ __forceinline__ void multiply(Fp8Shared& shared, const Fp8Rows<A>& a,
                                           const Fp8Rows<B>& b) {
    const std::uint32_t a_panels = kept_address(shared.a), b_panels = kept_address(shared.b);
    const int runs = static_cast<int>((a.depth + kFp8Run - 1) / kFp8Run);
    const int own = static_cast<int>(threadIdx.x) / (kThreads / 2) * kFp8OwnRows * kFp8Run;
    const auto fetch = [&](int run) {
      const std::uint32_t stage = run % kFp8Stages * Fp8Shared::kPanel;
      if (run < runs) {
        a.copy(a_panels + stage, std::int64_t{run} * kFp8Run);
        b.copy(b_panels + stage, std::int64_t{run} * kFp8Run);
      }
      close_copies();  // An empty group keeps the count of groups.
    };
    float chain[16][4] = {};
    for (int run = 0; run < kFp8Stages - 1; ++run) fetch(run);
    for (int run = 0; run < runs; ++run) {
      wait_for_copies<kFp8Stages - 2>();
      fence_for_tensor_core();
      __syncthreads();  // The run is there, and all have used the stage that is filled next.
      const std::uint32_t stage = run % kFp8Stages * Fp8Shared::kPanel;
      const std::uint64_t left = factor_along_k(a_panels + stage + own);
      const std::uint64_t right = factor_along_k(b_panels + stage);
      warpgroup_fence_operand(chain);
      warpgroup_arrive();
#pragma unroll
      for (int step = 0; step < kFp8Run / kFp8Group; ++step)
        wgmma_fp8<A, B>(chain, factor_at(left, step * kFp8Group),
                        factor_at(right, step * kFp8Group), step);
      warpgroup_commit();
      fetch(run + kFp8Stages - 1);
      warpgroup_wait<0>();
      warpgroup_fence_operand(chain);
#pragma unroll
      for (int x = 0; x < 16; ++x) {
#pragma unroll
        for (int e = 0; e < 4; ++e) total[x][e] = add(total[x][e], chain[x][e]);
      }
    }
    wait_for_copies<0>();
  }

  // f(row, column, sum) for the thread's sums.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int x = 0; x < 16; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        f(16 * warp_index() + lane_group() + 8 * (e / 2), 8 * x + 2 * lane_place() + e % 2,
          total[x][e]);
    }
  }
};

}  // namespace lockstep
