// The bf16 backward scan on the tensor core, 64 x 64 results at a time.
#pragma once

#include "kernels/cuda/mamba/scan_backward.cuh"
#include "kernels/cuda/mamba/scan_bf16.cuh"

namespace lockstep {

// Computes dS at the end of each chunk, as chunk_states_bf16 does but from the last chunk of a
// document to the first.
static __global__ void __launch_bounds__(kThreads, 1)
    chunk_state_gradients_bf16(ScanBackward<bf16> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ Stage stage;
  if (!begins_document(op, blockIdx.x)) return;
  const StateTile tile = state_tile(op);
  const int group = group_of(op, tile.head);
  std::int64_t index = blockIdx.x;
  while (continues(op, index)) ++index;
  TileSum ds;
  for (;; --index) {
    store_state(op.dstates, index, op, tile, ds);
    if (index == static_cast<std::int64_t>(blockIdx.x)) return;
    const Chunk chunk = chunk_at(op, index);
    const float decay_of_chunk = fill(decay, op, chunk, tile.head);
    advance(
        ds, stage, op, tile, chunk, decay_of_chunk,
        [&](int i, int n) { return c_of(op, chunk, group, i, n); },
        [&](int i, int p) { return dye_of(op, chunk, tile.head, i, p, decay); });
  }
}

// Rows of fp32 values in the order of R128. They share memory with the tiles, which are done by
// then.
using ScanRows = float[kSide][kHeadRows + 4];
union ScanRowsOrStage {
  ScanStage shared;
  ScanRows rows;
};
__device__ __forceinline__ void spread(ScanRows& rows, TileSum (&sum)[kHeadTiles],
                                       const ScanTile& tile) {
  __syncthreads();  // The previous contents have been used.
  each_channel(sum, tile, [&](int row, int p, float value) { rows[row][p] = add(value, 0.0f); });
  __syncthreads();
}
// row_term = R128 over p of fma(factor(row, p), rows[row][p], acc) for each row of the tile.
template <class F>
__device__ void sum_rows(const ScanBackward<bf16>& op, const ScanRows& rows, const ScanTile& tile,
                         RowTerm term, F factor) {
  for (int row = warp_index(); row < tile.rows; row += kWarps) {
    const float sum = r128(tile.width, [&](std::int64_t p, float acc) {
      return fma(factor(row, static_cast<int>(p)), rows[row][p], acc);
    });
    if (lane_index() == 0) row_term(op, tile.chunk.start + tile.first + row, term, tile.head) = sum;
  }
}

// Computes dx, and g, h, q of each row. One block per (chunk, head, 64 rows).
static __global__ void __launch_bounds__(kThreads, 1)
    scan_backward_input_bf16(ScanBackward<bf16> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ ScanRowsOrStage memory;
  const ScanTile tile = scan_tile(op);
  if (tile.rows <= 0) return;
  const Chunk& chunk = tile.chunk;
  const int group = group_of(op, tile.head);
  ScanStage& shared = memory.shared;
  fill(decay, op, chunk, tile.head);

  TileSum y[kHeadTiles];
  scan_rows(y, shared, op, tile, decay);
  spread(memory.rows, y, tile);
  sum_rows(op, memory.rows, tile, kH,
           [&](int row, int p) { return dy_of(op, chunk, tile.head, tile.first + row, p); });

  const float* const dstate = &at(op.dstates, chunk.index, state_column(op, tile.head));
  TileSum t[kHeadTiles];
  TileSum xa[kHeadTiles];
  extend_channels(
      t, shared.stage, tile, op.state,
      [&](int x, int n) { return b_of(op, chunk, group, tile.first + x, n); },
      [&](int n, int p) { return st<bf16>(dstate[n * tile.width + p]); });
#pragma unroll
  for (int x = 0; x < kHeadTiles; ++x) xa[x] = t[x];
  each_channel(xa, tile,
               [&](int x, int, float& value) { value = mul(value, decay.r[tile.first + x]); });
  for (int i0 = tile.first; i0 < chunk.rows; i0 += kSide) {
    mixing_tile<false>(shared, op, tile, i0, decay);
    extend_channels(
        xa, shared.stage, tile, static_cast<int>(smaller(kSide, chunk.rows - i0)),
        [&](int x, int i) { return shared.m[x][i]; },
        [&](int i, int p) { return at(op.dy, chunk.start + i0 + i, x_column(op, tile.head) + p); });
  }
  const auto x_at = [&](int row, int p) { return x_of(op, chunk, tile.head, tile.first + row, p); };
  spread(memory.rows, t, tile);
  sum_rows(op, memory.rows, tile, kQ, x_at);
  spread(memory.rows, xa, tile);
  sum_rows(op, memory.rows, tile, kG, x_at);
  const float d = at(op.d, 0, tile.head);
  for (int e = static_cast<int>(threadIdx.x); e < tile.rows * tile.width; e += kThreads) {
    const int row = e / tile.width;
    const int p = e % tile.width;
    const int j = tile.first + row;
    const float dx =
        fma(d, dy_of(op, chunk, tile.head, j, p), mul(memory.rows[row][p], decay.dt[j]));
    at(op.dxbc, chunk.start + j, x_column(op, tile.head) + p) = st<bf16>(dx);
  }
}

// Computes dC (a tile of rows i, with rows j <= i) or dB (a tile of rows j, with rows i >= j). One
// block per (chunk, group, 64 rows); KK and the sums over heads grow in registers.
template <bool of_c>
__global__ void __launch_bounds__(kThreads, 1) scan_backward_group_bf16(ScanBackward<bf16> op) {
  pdl_begin();
  __shared__ Decay decay;
  __shared__ ScanStage shared;
  ScanTile tile = scan_tile(op);
  if (tile.rows <= 0) return;
  const Chunk& chunk = tile.chunk;
  const int group = static_cast<int>(blockIdx.y);
  const int heads = op.heads / op.groups;
  const int begin = of_c ? 0 : tile.first;
  const int end = of_c ? tile.first + tile.rows : chunk.rows;
  TileSum kk[kChunkTiles];
  TileSum sum[kStateTiles];
  // Calls f(other tile, its first row, its rows) in order; the next lambda does so for the state.
  const auto for_partners = [&](auto f) {
#pragma unroll
    for (int x = 0; x < kChunkTiles; ++x) {
      const int first = kSide * x;
      if (first + kSide > begin && first < end)
        f(x, first, static_cast<int>(smaller(kSide, end - first)));
    }
  };
  const auto for_states = [&](auto f) {
#pragma unroll
    for (int x = 0; x < kStateTiles; ++x) {
      if (kSide * x < op.state) f(x, kSide * x, op.state - kSide * x);
    }
  };
  for (int head = group * heads; head < (group + 1) * heads; ++head) {
    fill(decay, op, chunk, head);
    const auto dy_at = [&](int i, int p) {
      return at(op.dy, chunk.start + i, x_column(op, head) + p);
    };
    const auto xd_at = [&](int j, int p) {
      return x_scaled<bf16>(op, chunk, head, j, p, decay.dt[j]);
    };
    for_partners([&](int x, int first, int partners) {
      TileSum dot;
      extend(dot, shared.stage, tile.width,
             along_k(tile.rows,
                     [&](int own, int p) {
                       return of_c ? dy_at(tile.first + own, p) : xd_at(tile.first + own, p);
                     }),
             along_k(partners, [&](int other, int p) {
               return of_c ? xd_at(first + other, p) : dy_at(first + other, p);
             }));
      dot.each([&](int own, int other, float& value) {
        const int i = of_c ? tile.first + own : first + other;
        const int j = of_c ? first + other : tile.first + own;
        const bool inside = own < tile.rows && other < partners && j <= i;
        value = inside ? mul(value, decay.between(i, j)) : 0.0f;
      });
#pragma unroll
      for (int y = 0; y < kOwnColumns / 8; ++y) {
#pragma unroll
        for (int e = 0; e < 4; ++e) kk[x].c[y][e] = add(kk[x].c[y][e], dot.c[y][e]);
      }
    });
    const float* const state =
        &at(of_c ? op.states : op.dstates, chunk.index, state_column(op, head));
    for_states([&](int x, int n0, int states) {
      extend(sum[x], shared.stage, tile.width,
             along_k(tile.rows,
                     [&](int own, int p) {
                       const int row = tile.first + own;
                       return of_c ? dye_of(op, chunk, head, row, p, decay)
                                   : x_scaled<bf16>(op, chunk, head, row, p, decay.w(row));
                     }),
             along_k(states,
                     [&](int n, int p) { return st<bf16>(state[(n0 + n) * tile.width + p]); }));
    });
  }
  const std::int64_t from = of_c ? b_column(op, group) : c_column(op, group);
  const std::int64_t to = of_c ? c_column(op, group) : b_column(op, group);
  for_partners([&](int x, int first, int partners) {
    __syncthreads();  // The previous tile of KKb has been used.
    kk[x].each([&](int own, int other, float value) {
      shared.m[own][other] = st<bf16>(add(value, 0.0f));
    });
    for_states([&](int y, int n0, int states) {
      extend(sum[y], shared.stage, partners,
             along_k(tile.rows, [&](int own, int k) { return shared.m[own][k]; }),
             across_k(states, [&](int n, int k) {
               return at(op.xbc, chunk.start + first + k, from + n0 + n);
             }));
    });
  });
  for_states([&](int y, int n0, int states) {
    sum[y].each([&](int own, int n, float value) {
      if (own < tile.rows && n < states) {
        at(op.dxbc, chunk.start + tile.first + own, to + n0 + n) = st<bf16>(add(value, 0.0f));
      }
    });
  });
}

}  // namespace lockstep
