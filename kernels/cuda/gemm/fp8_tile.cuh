// Tiles of 128 x 256 sums DOT8, which blocks of three warpgroups take one after the other. The
// first warpgroup copies runs of both factors into a ring of stages in shared memory. Each of the
// others has 64 rows: a run of 128 places is four k32 steps from zero in one accumulator of 64 x
// 128, which is then added to the total of its half of the columns in fp32, while the tensor core
// works for the other warpgroup.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/element.cuh"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/panels.cuh"
#include "kernels/cuda/common/wgmma_fp8.cuh"

namespace lockstep {

inline constexpr int kFp8TileRows = 128, kFp8TileColumns = 256;
inline constexpr int kFp8Half = kFp8TileColumns / 2;  // Columns of one accumulator.
inline constexpr int kFp8OwnRows = 64;                // Of a warpgroup.
inline constexpr int kFp8Threads = 3 * kWarpgroup;
inline constexpr int kFp8Stages = 4;
inline constexpr int kFp8CopiesInFlight = 2;  // Stages that are filled, but not yet handed over.
static_assert(kFp8CopiesInFlight < kFp8Stages && kFp8TileRows == 2 * kFp8OwnRows);
static_assert(kFp8Run == static_cast<int>(kPanelRow), "a panel's row is one run");

__host__ __device__ constexpr int tiles_of_rows(std::int64_t rows) {
  return static_cast<int>((rows + kFp8TileRows - 1) / kFp8TileRows);
}
__host__ __device__ constexpr int tiles_of_columns(std::int64_t columns) {
  return static_cast<int>((columns + kFp8TileColumns - 1) / kFp8TileColumns);
}

struct Fp8Shared {
  struct Stage {
    alignas(1024) unsigned char a[kFp8TileRows * kFp8Run];
    alignas(1024) unsigned char b[kFp8TileColumns * kFp8Run];
  } stage[kFp8Stages];
  Barrier full[kFp8Stages], free[kFp8Stages];
};
static_assert(sizeof(Fp8Shared) <= 227 * 1024, "what a block may have");

// The ring by its address, so that a stage costs one addition.
struct Fp8Ring {
  std::uint32_t memory;

  __device__ __forceinline__ std::uint32_t a(int stage) const {
    return memory + static_cast<std::uint32_t>(sizeof(Fp8Shared::Stage)) * stage;
  }
  __device__ __forceinline__ std::uint32_t b(int stage) const {
    return a(stage) + static_cast<std::uint32_t>(offsetof(Fp8Shared::Stage, b));
  }
  __device__ __forceinline__ BarrierAt full(int stage) const {
    return {memory +
            static_cast<std::uint32_t>(offsetof(Fp8Shared, full) + sizeof(Barrier) * stage)};
  }
  __device__ __forceinline__ BarrierAt free(int stage) const {
    return {memory +
            static_cast<std::uint32_t>(offsetof(Fp8Shared, free) + sizeof(Barrier) * stage)};
  }
  __device__ void init() const {
    for (int s = 0; s < kFp8Stages; ++s) {
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
// 256).
template <class A, class B>
struct Fp8Tile {
  Fp8Rows<A> a;
  Fp8Rows<B> b;
  __device__ __forceinline__ int runs() const {
    return static_cast<int>((a.depth + kFp8Run - 1) / kFp8Run);
  }
};

// The warpgroup that fills the ring.
class Fp8Feed {
 public:
  __device__ __forceinline__ explicit Fp8Feed(const Fp8Ring& ring) : ring_(ring) {}

  template <class A, class B>
  __device__ __forceinline__ void fill(const Fp8Tile<A, B>& tile) {
    const int runs = tile.runs();
    for (int run = 0; run < runs; ++run) {
      const std::int64_t k0 = std::int64_t{run} * kFp8Run;
      ring_.free(filled_.stage).wait(filled_.phase ^ 1);
      tile.a.template copy<kFp8TileRows>(ring_.a(filled_.stage), k0);
      if (tile.b.rows <= kFp8Half) {
        tile.b.template copy<kFp8Half>(ring_.b(filled_.stage), k0);
      } else {
        tile.b.template copy<kFp8TileColumns>(ring_.b(filled_.stage), k0);
      }
      close_copies();
      filled_.next();
      if (open_ < kFp8CopiesInFlight) {
        ++open_;
      } else {
        wait_for_copies<kFp8CopiesInFlight>();
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

  Fp8Ring ring_;
  PipelineState<kFp8Stages> filled_, handed_;
  int open_ = 0;
};

// total[h][x][e] of a thread: DOT8 of the tile's row 64 w + 16 v + g + 8 (e / 2) and column
// 128 h + 8 x + 2 p + e % 2, for warp v of warpgroup w with lane group g and place p.
struct Fp8Sums {
  float total[2][16][4] = {};

  template <class A, class B>
  __device__ __forceinline__ void multiply(const Fp8Ring& ring, PipelineState<kFp8Stages>& at,
                                           const Fp8Tile<A, B>& tile) {
    const int runs = tile.runs();
    // Of lane 0, so that the compiler keeps factors in registers of the whole warp.
    const int warpgroup = __shfl_sync(0xffffffffu, own_row() / kFp8OwnRows, 0);
    const std::uint32_t left = lower_of_factor(ring.a(0) + warpgroup * kFp8OwnRows * kFp8Run);
    const std::uint32_t right = lower_of_factor(ring.b(0));
    const bool both = tile.b.rows > kFp8Half;
    float chain[16][4] = {};
    for (int run = 0; run < runs; ++run, at.next()) {
      const std::uint32_t stage = (ring.a(at.stage) - ring.a(0)) / 16;
      ring.full(at.stage).wait(at.phase);
      add_run<A, B>(total[0], chain, left + stage, right + stage);
      if (both)
        add_run<A, B>(total[1], chain, left + stage, right + stage + kFp8Half * kFp8Run / 16);
      __syncwarp();
      if (lane_index() == 0) ring.free(at.stage).arrive();
    }
  }
  // The first of the thread's two rows of the tile; the other one is 8 behind it.
  static __device__ __forceinline__ int own_row() {
    return 16 * (warp_index() - kWarpgroup / kWarp) + lane_group();
  }
  // f(row, column, sum, sum of the next column) for the thread's sums.
  template <class F>
  __device__ __forceinline__ void each_pair(const F& f) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int x = 0; x < 16; ++x) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          f(own_row() + 8 * r, kFp8Half * h + 8 * x + 2 * lane_place(), total[h][x][2 * r],
            total[h][x][2 * r + 1]);
      }
    }
  }

 private:
  template <class A, class B>
  static __device__ __forceinline__ void add_run(float (&total)[16][4], float (&chain)[16][4],
                                                 std::uint32_t left, std::uint32_t right) {
    warpgroup_fence_operand(chain);
    warpgroup_arrive();
#pragma unroll
    for (int step = 0; step < kFp8Run / kFp8Group; ++step)
      wgmma_fp8<A, B>(chain, left + step * kFp8Group / 16, right + step * kFp8Group / 16, step);
    warpgroup_commit();
    warpgroup_wait<0>();
    warpgroup_fence_operand(chain);
#pragma unroll
    for (int x = 0; x < 16; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) total[x][e] = add(total[x][e], chain[x][e]);
    }
  }
};

// The body of a kernel of kFp8Threads threads with an Fp8Shared. Its blocks take the tiles 0, 1,
// ... in turns: tiles.at(n) is the nth, and tiles.ending(tile) what its sums, once they are known,
// are stored with by store(). All warps of a block call at(), whole.
template <class Tiles>
__device__ __forceinline__ void fp8_tiles(const void* shared, const Tiles& tiles) {
  const Fp8Ring ring{kept_address(shared)};
  if (threadIdx.x == 0) ring.init();
  __syncthreads();
  const int count = tiles.count();
  if (static_cast<int>(threadIdx.x) < kWarpgroup) {
    give_registers<40>();
    Fp8Feed feed(ring);
    for (int n = blockIdx.x; n < count; n += gridDim.x) feed.fill(tiles.at(n).factors);
    feed.finish();
  } else {
    take_registers<232>();
    PipelineState<kFp8Stages> stage;
    for (int n = blockIdx.x; n < count; n += gridDim.x) {
      const auto tile = tiles.at(n);
      const auto ending = tiles.ending(tile);
      Fp8Sums sums;
      sums.multiply(ring, stage, tile.factors);
      ending.store(sums);
    }
  }
}

// Launches a kernel that calls fp8_tiles(), for at most `tiles` tiles.
template <class... Parameters, class... Arguments>
void launch_fp8_tiles(CudaQueue queue, std::int64_t tiles, void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Fp8Shared)));
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(tiles, multiprocessors()));
  launch(queue, dim3(blocks), dim3(kFp8Threads),
         {.shared_bytes = sizeof(Fp8Shared), .overlaps = true}, kernel, arguments...);
}

}  // namespace lockstep
