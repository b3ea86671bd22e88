// Tiles of 128 x 256 or 128 x 192 sums DOT8, which blocks of three warpgroups take one after the
// other. The first warpgroup copies runs of both factors into a ring of stages in shared memory.
// Each of the others has 64 rows: a run of 128 places is four k32 steps from zero in one
// accumulator of 64 x 128 or 64 x 192, which is then added to the total of its part of the columns
// in fp32, while the tensor core works for the other warpgroup.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/panels.cuh"
#include "kernels/cuda/common/wgmma_fp8.cuh"
#include "kernels/cuda/gemm/fp8_tile_columns.h"

namespace lockstep {

inline constexpr int kFp8OwnRows = 64;  // Of a warpgroup.
inline constexpr int kFp8Threads = 3 * kWarpgroup;
static_assert(kFp8TileRows == 2 * kFp8OwnRows);
static_assert(kFp8Run == static_cast<int>(kPanelRow), "a panel's row is one run");

template <int kColumns>
struct Fp8Shared {
  struct Stage {
    alignas(1024) unsigned char a[kFp8TileRows * kFp8Run];
    alignas(1024) unsigned char b[kColumns * kFp8Run];
  };
  // A block's 227 KiB hold so many, beside the barriers.
  static constexpr int kStages = 226 * 1024 / static_cast<int>(sizeof(Stage));
  Stage stage[kStages];
  Barrier full[kStages], free[kStages];
};

// The ring by its address, so that a stage costs one addition.
template <int kColumns>
struct Fp8Ring {
  using Shared = Fp8Shared<kColumns>;
  static constexpr int kStages = Shared::kStages;
  static constexpr int kCopiesInFlight = kStages - 2;  // Stages filled, not yet handed over.
  // The columns of one accumulator, and how many of them a tile has.
  static constexpr int kPart = kColumns % 128 == 0 ? 128 : kColumns, kParts = kColumns / kPart;
  std::uint32_t memory;

  __device__ __forceinline__ std::uint32_t a(int stage) const {
    return memory + static_cast<std::uint32_t>(sizeof(typename Shared::Stage)) * stage;
  }
  __device__ __forceinline__ std::uint32_t b(int stage) const {
    return a(stage) + static_cast<std::uint32_t>(offsetof(typename Shared::Stage, b));
  }
  __device__ __forceinline__ BarrierAt full(int stage) const {
    return {memory + static_cast<std::uint32_t>(offsetof(Shared, full) + sizeof(Barrier) * stage)};
  }
  __device__ __forceinline__ BarrierAt free(int stage) const {
    return {memory + static_cast<std::uint32_t>(offsetof(Shared, free) + sizeof(Barrier) * stage)};
  }
  __device__ void init() const {
    for (int s = 0; s < kStages; ++s) {
      full(s).init(kWarpgroup);
      free(s).init(2 * kWarpgroup / kWarp);
    }
    fence_barriers();
  }
};

// Rows of a factor, `depth` codes each, a multiple of 16.
template <class F>
struct Fp8Rows {
  const F* data;
  std::int64_t pitch;
  int rows;
  std::int64_t depth;

  // Called by a warpgroup. Starts the copy of the run from k0 on into kRows rows of a panel; code
  // 00 where there is no row or no place.
  template <int kRows>
  __device__ __forceinline__ void copy(std::uint32_t panel, std::int64_t k0) const {
    constexpr int kChunks = kFp8Run / 16;
    constexpr int kStride = kWarpgroup / kChunks;  // A multiple of 8: one permutation for a thread.
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    const int chunk = thread % kChunks, row = thread / kChunks;
    const std::int64_t k = k0 + 16 * chunk, step = kStride * pitch;
    const F* source = data + row * pitch + k;
    const int some = k < depth ? rows - row : 0;
    panel += panel_place(row, chunk);
#pragma unroll
    for (int i = 0; i < kRows; i += kStride) {
      copy_16(panel + i * kPanelRow, source, i < some);
      source += step;
    }
  }
};

// A tile's factors: its sums are those of the rows of a (at most 128) with the rows of b (at most
// as many as the tile has columns).
template <class A, class B>
struct Fp8Tile {
  Fp8Rows<A> a;
  Fp8Rows<B> b;
  __device__ __forceinline__ int runs() const {
    return static_cast<int>((a.depth + kFp8Run - 1) / kFp8Run);
  }
};

// The warpgroup that fills the ring.
template <int kColumns>
class Fp8Feed {
 public:
  using Ring = Fp8Ring<kColumns>;
  __device__ __forceinline__ explicit Fp8Feed(const Ring& ring) : ring_(ring) {}

  // Calls near_end() some runs before the tile's last one.
  template <class A, class B, class F>
  __device__ __forceinline__ void fill(const Fp8Tile<A, B>& tile, const F& near_end) {
    constexpr int kBefore = 8;
    const int runs = tile.runs(), late = runs > kBefore ? runs - kBefore : 0;
    for (int run = 0; run < runs; ++run) {
      if (run == late) near_end();
      const std::int64_t k0 = std::int64_t{run} * kFp8Run;
      ring_.free(filled_.stage).wait(filled_.phase ^ 1);
      tile.a.template copy<kFp8TileRows>(ring_.a(filled_.stage), k0);
      if (Ring::kParts > 1 && tile.b.rows <= Ring::kPart) {
        tile.b.template copy<Ring::kPart>(ring_.b(filled_.stage), k0);
      } else {
        tile.b.template copy<kColumns>(ring_.b(filled_.stage), k0);
      }
      close_copies();
      filled_.next();
      if (open_ < Ring::kCopiesInFlight) {
        ++open_;
      } else {
        wait_for_copies<Ring::kCopiesInFlight>();
        hand_over();
      }
    }
  }
  __device__ __forceinline__ void finish() {
    wait_for_copies<0>();
    for (; open_ > 0; --open_) hand_over();
  }

 private:
  __device__ __forceinline__ void hand_over() {
    fence_for_tensor_core();
    ring_.full(handed_.stage).arrive();
    handed_.next();
  }

  Ring ring_;
  PipelineState<Ring::kStages> filled_, handed_;
  int open_ = 0;
};

// total[h][x][e] of a thread: DOT8 of the tile's row 64 w + 16 v + g + 8 (e / 2) and column
// kPart h + 8 x + 2 p + e % 2, for warp v of warpgroup w with lane group g and place p.
template <int kColumns>
struct Fp8Sums {
  using Ring = Fp8Ring<kColumns>;
  static constexpr int kPart = Ring::kPart, kParts = Ring::kParts, kFragments = kPart / 8;
  float total[kParts][kFragments][4] = {};

  template <class A, class B>
  __device__ __forceinline__ void multiply(const Ring& ring, PipelineState<Ring::kStages>& at,
                                           const Fp8Tile<A, B>& tile) {
    const int runs = tile.runs();
    // Of lane 0, so that the compiler keeps factors in registers of the whole warp.
    const int warpgroup = __shfl_sync(0xffffffffu, own_row() / kFp8OwnRows, 0);
    const std::uint32_t left = lower_of_factor(ring.a(0) + warpgroup * kFp8OwnRows * kFp8Run);
    const std::uint32_t right = lower_of_factor(ring.b(0));
    const bool both = kParts > 1 && tile.b.rows > kPart;
    float chain[kFragments][4] = {};
    for (int run = 0; run < runs; ++run, at.next()) {
      const std::uint32_t stage = (ring.a(at.stage) - ring.a(0)) / 16;
      ring.full(at.stage).wait(at.phase);
      add_run<A, B>(total[0], chain, left + stage, right + stage);
      if (both)
        add_run<A, B>(total[kParts - 1], chain, left + stage, right + stage + kPart * kFp8Run / 16);
      __syncwarp();
      if (lane_index() == 0) ring.free(at.stage).arrive();
    }
  }
  // The sums of the columns 8 x to 8 x + 7 of the tile.
  __device__ __forceinline__ const float (&fragment(int x) const)[4] {
    return total[x / kFragments][x % kFragments];
  }
  // The first of the thread's two rows of the tile; the other one is 8 behind it.
  static __device__ __forceinline__ int own_row() {
    return 16 * (warp_index() - kWarpgroup / kWarp) + lane_group();
  }
  // f(row, column, sum, sum of the next column) for the thread's sums.
  template <class F>
  __device__ __forceinline__ void each_pair(const F& f) const {
#pragma unroll
    for (int h = 0; h < kParts; ++h) {
#pragma unroll
      for (int x = 0; x < kFragments; ++x) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          f(own_row() + 8 * r, kPart * h + 8 * x + 2 * lane_place(), total[h][x][2 * r],
            total[h][x][2 * r + 1]);
      }
    }
  }

 private:
  template <class A, class B>
  static __device__ __forceinline__ void add_run(float (&total)[kFragments][4],
                                                 float (&chain)[kFragments][4], std::uint32_t left,
                                                 std::uint32_t right) {
    warpgroup_fence_operand(chain);
    warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < kFp8Run / kFp8Group; ++step)
      wgmma_fp8<A, B>(chain, left + step * kFp8Group / 16, right + step * kFp8Group / 16, step);
    warpgroup_commit();
    warpgroup_wait<0>();
    warpgroup_fence_operand(chain);
#pragma unroll
    for (int x = 0; x < kFragments; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) total[x][e] = add(total[x][e], chain[x][e]);
    }
  }
};

// The body of a kernel of kFp8Threads threads with an Fp8Shared, for tiles of Tiles::kColumns
// columns. Its blocks take the tiles 0, 1, ... in turns: tiles.at(n) is the nth, and
// tiles.ending(tile) what its sums, once they are known, are stored with by store(). The warpgroup
// that feeds calls tiles.prefetch(tile), if there is one, before the tile's last runs. All warps of
// a block call at(), whole.
template <class Tiles>
__device__ __forceinline__ void fp8_tiles(const void* shared, const Tiles& tiles) {
  using Ring = Fp8Ring<Tiles::kColumns>;
  const Ring ring{kept_address(shared)};
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  const int count = tiles.count();
  if (static_cast<int>(threadIdx.x) < kWarpgroup) {
    give_registers<40>();
    Fp8Feed<Tiles::kColumns> feed(ring);
    for (int n = blockIdx.x; n < count; n += gridDim.x) {
      if constexpr (requires { tiles.prefetch(tiles.at(n)); }) {
        const auto tile = tiles.at(n);
        feed.fill(tile.factors, [&] { tiles.prefetch(tile); });
      } else {
        feed.fill(tiles.at(n).factors, [] {});
      }
    }
    feed.finish();
  } else {
    take_registers<232>();
    PipelineState<Ring::kStages> stage;
    for (int n = blockIdx.x; n < count; n += gridDim.x) {
      const auto tile = tiles.at(n);
      const auto ending = tiles.ending(tile);
      Fp8Sums<Tiles::kColumns> sums;
      sums.multiply(ring, stage, tile.factors);
      ending.store(sums);
    }
  }
}

// Launches a kernel that calls fp8_tiles(), for at most `tiles` tiles of kColumns columns.
template <int kColumns, class... Parameters, class... Arguments>
void launch_fp8_tiles(CudaQueue queue, std::int64_t tiles, void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
  constexpr std::size_t kBytes = sizeof(Fp8Shared<kColumns>);
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, multiprocessors()));
  launch(queue, dim3(blocks), dim3(kFp8Threads), {.shared_bytes = kBytes, .overlaps = true}, kernel,
         arguments...);
}

}  // namespace lockstep
