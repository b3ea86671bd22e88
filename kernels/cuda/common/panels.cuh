// Rows of a matrix as panels in shared memory (wgmma.cuh), filled by one warpgroup for others, and
// the ring of buffers through which they are handed over.
#pragma once

#include "kernels/core/operand.h"
#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/fragment.cuh"
#include "kernels/cuda/common/wgmma.cuh"

namespace lockstep {

inline constexpr int kWarpgroup = 128;  // Threads.

// Rows of `hd` columns in panels. Columns past `hd` and rows past `rows` are +0.
template <int kRows, int kWidth>
struct HeadPanels {
  static constexpr std::uint32_t kPanel = kRows * kPanelRow;
  static constexpr std::uint32_t kBytes = kWidth / 64 * kPanel;

  // Called by a warpgroup. Copies may still be in flight when it returns.
  static __device__ __forceinline__ void fill(std::uint32_t to, const In<bf16>& from,
                                              std::int64_t first, int rows, std::int64_t column,
                                              int hd) {
    constexpr int kChunks = kWidth / 8;
    constexpr int kStride =
        kWarpgroup / kChunks;  // A multiple of 8: all rows of a thread have one permutation.
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    const int chunk = thread % kChunks;
    const int row = thread / kChunks;
    const bf16* const head = from.data + first * from.pitch + column;
    const bf16* source = head + row * from.pitch + 8 * chunk;
    const bool any = 8 * chunk < hd;
    to += static_cast<std::uint32_t>(chunk / 8) * kPanel + panel_place(row, chunk % 8);
    if (moves_vec8(head, from.pitch) && hd % 8 == 0) {
      const std::int64_t stride = kStride * from.pitch;
#pragma unroll
      for (int i = 0; i < kRows; i += kStride) {
        copy_16(to + i * kPanelRow, source, any && row + i < rows);
        source += stride;
      }
    } else {
      for (int i = 0; i < kRows; i += kStride) {
        Vec8 eight = {};
        if (any && row + i < rows)
          eight = load_vec8(source + i * from.pitch, hd - 8 * chunk, false);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + i * kPanelRow),
                     "r"(eight.pairs[0]), "r"(eight.pairs[1]), "r"(eight.pairs[2]),
                     "r"(eight.pairs[3])
                     : "memory");
      }
    }
  }
};

// A stage of a ring of buffers, with its barriers' phase.
template <int kStages>
struct PipelineState {
  int stage = 0;
  std::uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

}  // namespace lockstep
