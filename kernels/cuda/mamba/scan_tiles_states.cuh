// The chunk states S and their gradients dS in tiles. A block of four warps walks the chunks of a
// document for one head, and a warp owns the whole state of 16 channels. The next chunk's rows are
// copied while this one's are multiplied.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_chunks.cuh"

namespace lockstep {

inline constexpr int kWalkThreads = 128;
inline constexpr int kOwnStateTiles = kTileState / 16;

struct WalkStage {
  RowsByState left;  // B_j[n]; backward C_i[n].
  RowsByHead right;  // x_j[p]; backward dy_i[p]. Scaled in place.
  TileDecay decay;
};
struct WalkShared {
  WalkStage stage[2];
  float products[1024];  // The accumulators of R1024.
};

// The lane's part of a head's state: rows 16m + g and 16m + g + 8, columns 16w + 8x + 2t and 16w +
// 8x + 2t + 1.
struct OwnState {
  float c[kOwnStateTiles][2][4] = {};

  // Calls f(n, p, value, next value) for each pair of neighbouring elements.
  template <class F>
  __device__ __forceinline__ void pairs(F f) const {
#pragma unroll
    for (int m = 0; m < kOwnStateTiles; ++m) {
#pragma unroll
      for (int x = 0; x < 2; ++x) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          f(16 * m + lane_group() + 8 * h, 16 * warp_index() + 8 * x + 2 * lane_place(),
            c[m][x][2 * h], c[m][x][2 * h + 1]);
        }
      }
    }
  }
  __device__ __forceinline__ void store_rounded(bf16* to) const {
    pairs([&](int n, int p, float low, float high) {
      *reinterpret_cast<std::uint32_t*>(to + n * kTileHead + p) = stored_pair(low, high);
    });
  }
};
// fp32 in the order of the lanes, since each lane reads what it wrote itself.
__device__ __forceinline__ float4* lane_order(float* to) {
  return reinterpret_cast<float4*>(to) + threadIdx.x;
}
__device__ __forceinline__ void store_exactly(float* to, const OwnState& s) {
#pragma unroll
  for (int m = 0; m < kOwnStateTiles; ++m) {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float(&c)[4] = s.c[m][x];
      lane_order(to)[(2 * m + x) * kWalkThreads] = make_float4(c[0], c[1], c[2], c[3]);
    }
  }
}

// s = fma(eL, s, DOT over the chunk's rows of left(row, n), right(row, p)).
__device__ __forceinline__ void advance(OwnState& s, const WalkStage& stage, int rows) {
  OwnState grown;
  for (int j = 0; j < rows; j += kStep) {
    std::uint32_t b[2][2];
    right_across(b, stage.right, 16 * warp_index(), j);
#pragma unroll
    for (int m = 0; m < kOwnStateTiles; ++m) {
      std::uint32_t a[4];
      left_across(a, stage.left, 16 * m, j);
      fda16(grown.c[m][0], a, b[0]);
      fda16(grown.c[m][1], a, b[1]);
    }
  }
  const float kept = expn(stage.decay.end());
#pragma unroll
  for (int m = 0; m < kOwnStateTiles; ++m) {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s.c[m][x][e] = fma(kept, s.c[m][x][e], grown.c[m][x][e]);
    }
  }
}
// Walks chunks c, c + step, .. last. `start(stage, chunk)` begins a chunk's copies, `keep(chunk)`
// stores the state before it, `factor(decay, row)` scales a row.
template <class Start, class Keep, class Factor>
__device__ __forceinline__ void walk(WalkShared& shared, OwnState& s,
                                     const ChunkedDocument& document, int c, int last, int step,
                                     const Start& start, const Keep& keep, const Factor& factor) {
  if (c != last) start(shared.stage[0], document[c]);
  close_copies();
  for (int turn = 0;; turn ^= 1, c += step) {
    keep(document[c]);
    if (c == last) return;
    WalkStage& stage = shared.stage[turn];
    __syncthreads();  // The other stage has been used.
    if (c + step != last) start(shared.stage[turn ^ 1], document[c + step]);
    close_copies();
    wait_for_copies<1>();
    __syncthreads();
    scale_row(stage.right, factor(stage.decay, static_cast<int>(threadIdx.x)));
    __syncthreads();
    advance(s, stage, kTileRows);
  }
}

// A block works if its chunk is the first of a document.
template <class Op>
__global__ void __launch_bounds__(kWalkThreads, 2) tile_states(Op op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  WalkShared& shared = *reinterpret_cast<WalkShared*>(memory);
  each_document(op, [&](const ChunkedDocument& document, int head) {
    OwnState s;
    walk(
        shared, s, document, 0, document.chunks - 1, 1,
        [&](WalkStage& stage, const Chunk& chunk) {
          start_rows(stage.left, op.xbc, chunk, b_column(op, group_of(op, head)));
          start_rows(stage.right, op.xbc, chunk, x_column(op, head));
          stage.decay.start(op, chunk, head);
        },
        [&](const Chunk& chunk) {
          s.store_rounded(stored_state(op, chunk.index, head));
          if constexpr (std::is_same_v<Op, ScanBackward<bf16>>)
            store_exactly(head_part(op.states, chunk.index, head), s);
        },
        [](const TileDecay& decay, int j) { return mul(decay.to_end(j), decay.dt[j]); });
  });
}

}  // namespace lockstep
