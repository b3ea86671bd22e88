// The bf16 scan on the tensor core, 64 x 64 results at a time: M, y~ and the chunk states.
#pragma once

#include "kernels/cuda/common/tile_product.cuh"
#include "kernels/cuda/mamba/scan.cuh"

namespace lockstep {

inline constexpr int kHeadTiles = kHeadRows / kSide;
inline constexpr int kStateTiles = kState / kSide;
inline constexpr int kChunkTiles = kChunk / kSide;

// The rows [first, first + rows) of a chunk, and the head, that a block works on.
struct ScanTile {
  Chunk chunk;
  int head;
  int width;  // P
  int first;
  int rows;  // At most 64; not positive past the chunk's end.
};
template <class Op>
__device__ ScanTile scan_tile(const Op& op) {
  const Chunk chunk = chunk_at(op, blockIdx.x);
  const int first = static_cast<int>(blockIdx.z) * kSide;
  return {chunk, static_cast<int>(blockIdx.y), head_rows(op), first,
          static_cast<int>(smaller(kSide, chunk.rows - first))};
}

struct ScanStage {
  Stage stage;
  bf16 m[kSide][kSide + 8];  // A tile of M, or of KKb.
};

// B_j[n] and C_i[n].
template <class Op>
__device__ bf16 b_of(const Op& op, const Chunk& chunk, int group, int j, int n) {
  return at(op.xbc, chunk.start + j, b_column(op, group) + n);
}
template <class Op>
__device__ bf16 c_of(const Op& op, const Chunk& chunk, int group, int i, int n) {
  return at(op.xbc, chunk.start + i, c_column(op, group) + n);
}

// Calls f(row, p, value) for each own element of the tile's rows and the head's channels.
template <class F>
__device__ __forceinline__ void each_channel(TileSum (&sum)[kHeadTiles], const ScanTile& tile,
                                             F f) {
#pragma unroll
  for (int t = 0; t < kHeadTiles; ++t) {
    sum[t].each([&, t](int row, int n, float& value) {
      const int p = kSide * t + n;
      if (row < tile.rows && p < tile.width) f(row, p, value);
    });
  }
}
// Continues the chains of the tile's rows in all channels of the head with a(row, k) * b(k, p).
template <class A, class B>
__device__ __forceinline__ void extend_channels(TileSum (&sum)[kHeadTiles], Stage& stage,
                                                const ScanTile& tile, int depth, const A& a,
                                                const B& b) {
#pragma unroll
  for (int t = 0; t < kHeadTiles; ++t) {
    if (kSide * t < tile.width) {
      extend(
          sum[t], stage, depth, along_k(tile.rows, a),
          across_k(tile.width - kSide * t, [&, t](int n, int k) { return b(k, kSide * t + n); }));
    }
  }
}

// Fills a tile of M in shared memory: rows i of the tile and 64 columns j from `other`, or rows j
// and columns i. Elements are +0 where j > i and past the chunk's end.
template <bool of_rows, class Op>
__device__ __forceinline__ void mixing_tile(ScanStage& shared, const Op& op, const ScanTile& tile,
                                            int other, const Decay& decay) {
  const int group = group_of(op, tile.head);
  const int others = static_cast<int>(smaller(kSide, tile.chunk.rows - other));
  TileSum g;
  extend(g, shared.stage, op.state,
         along_k(tile.rows,
                 [&](int x, int n) {
                   return of_rows ? c_of(op, tile.chunk, group, tile.first + x, n)
                                  : b_of(op, tile.chunk, group, tile.first + x, n);
                 }),
         along_k(others, [&](int y, int n) {
           return of_rows ? b_of(op, tile.chunk, group, other + y, n)
                          : c_of(op, tile.chunk, group, other + y, n);
         }));
  g.each([&](int x, int y, float value) {
    const int i = of_rows ? tile.first + x : other + y;
    const int j = of_rows ? other + y : tile.first + x;
    const bool inside = x < tile.rows && y < others && j <= i;
    shared.m[x][y] = st<bf16>(inside ? mul(value, decay.between(i, j)) : 0.0f);
  });
}

// Computes y~ of the tile's rows without the last add of +0.
template <class Op>
__device__ __forceinline__ void scan_rows(TileSum (&y)[kHeadTiles], ScanStage& shared, const Op& op,
                                          const ScanTile& tile, const Decay& decay) {
  const Chunk& chunk = tile.chunk;
  const int group = group_of(op, tile.head);
  const float* const state = &at(op.states, chunk.index, state_column(op, tile.head));
  extend_channels(
      y, shared.stage, tile, op.state,
      [&](int x, int n) { return c_of(op, chunk, group, tile.first + x, n); },
      [&](int n, int p) { return st<bf16>(state[n * tile.width + p]); });
  each_channel(y, tile,
               [&](int x, int, float& value) { value = mul(value, decay.e[tile.first + x]); });
  for (int j0 = 0; j0 <= tile.first; j0 += kSide) {
    mixing_tile<true>(shared, op, tile, j0, decay);
    extend_channels(
        y, shared.stage, tile, static_cast<int>(smaller(kSide, chunk.rows - j0)),
        [&](int x, int j) { return shared.m[x][j]; },
        [&](int j, int p) {
          return x_scaled<bf16>(op, chunk, tile.head, j0 + j, p, decay.dt[j0 + j]);
        });
  }
}

// 64 x 64 elements of a head's [N, P] state.
struct StateTile {
  int head;
  int width;  // P
  int n0;
  int p0;
};
template <class Op>
__device__ StateTile state_tile(const Op& op) {
  const int width = head_rows(op);
  const int across = (width + kSide - 1) / kSide;
  const int part = static_cast<int>(blockIdx.z);
  return {static_cast<int>(blockIdx.y), width, part / across * kSide, part % across * kSide};
}
template <class Op>
dim3 state_tile_grid(const Op& op) {
  return dim3(static_cast<unsigned>(op.chunk_document.cols), static_cast<unsigned>(op.heads),
              blocks_for(op.state, kSide) * blocks_for(host_head_rows(op), kSide));
}
// s = fma(eL, s, DOT over the chunk's rows of row(j, n), column(j, p)).
template <class Op, class Row, class Column>
__device__ __forceinline__ void advance(TileSum& s, Stage& stage, const Op& op,
                                        const StateTile& tile, const Chunk& chunk,
                                        float decay_of_chunk, Row row, Column column) {
  TileSum grown;
  extend(grown, stage, chunk.rows,
         across_k(op.state - tile.n0, [&](int n, int j) { return row(j, tile.n0 + n); }),
         across_k(tile.width - tile.p0, [&](int p, int j) { return column(j, tile.p0 + p); }));
#pragma unroll
  for (int x = 0; x < kOwnColumns / 8; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) s.c[x][e] = fma(decay_of_chunk, s.c[x][e], grown.c[x][e]);
  }
}
template <class Op>
__device__ __forceinline__ void store_state(const Scratch<float>& states, std::int64_t index,
                                            const Op& op, const StateTile& tile, TileSum& s) {
  s.each([&](int x, int y, float value) {
    const int n = tile.n0 + x;
    const int p = tile.p0 + y;
    if (n < op.state && p < tile.width)
      at(states, index, state_column(op, tile.head) + n * tile.width + p) = value;
  });
}

// Computes the state at the start of each chunk. One block per (document, head, 64 x 64 elements of
// the state), at the document's first chunk, walks the chunks in order.
template <class Op>
__global__ void __launch_bounds__(kThreads, 1) chunk_states_bf16(Op op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ Stage stage;
  if (!begins_document(op, blockIdx.x)) return;
  const StateTile tile = state_tile(op);
  const int group = group_of(op, tile.head);
  TileSum s;
  for (std::int64_t index = blockIdx.x;; ++index) {
    store_state(op.states, index, op, tile, s);
    if (!continues(op, index)) return;
    const Chunk chunk = chunk_at(op, index);
    const float decay_of_chunk = fill(decay, op, chunk, tile.head);
    advance(
        s, stage, op, tile, chunk, decay_of_chunk,
        [&](int j, int n) { return b_of(op, chunk, group, j, n); },
        [&](int j, int p) { return x_scaled<bf16>(op, chunk, tile.head, j, p, decay.w(j)); });
  }
}

}  // namespace lockstep
