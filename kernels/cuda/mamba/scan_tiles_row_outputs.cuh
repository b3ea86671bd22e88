// The outputs of each row of a chunk in the backward scan, in tiles: h, the sum of y~ with dy. One
// block of eight warps per (chunk, group, four heads). C B^T of the group lies in shared memory.
// While one of a multiprocessor's two blocks waits for the next head's operands, the other
// computes.
#pragma once

#include "kernels/cuda/mamba/scan_tiles.cuh"

namespace lockstep {

inline constexpr int kBlockHeads = 4;

// The heads [first, last) of a block.
struct BlockHeads {
  int group;
  int first;
  int last;
};
// The number of blocks for a group's heads.
template <class Op>
__host__ __device__ __forceinline__ int head_parts(const Op& op) {
  return (op.heads / op.groups + kBlockHeads - 1) / kBlockHeads;
}
template <class Op>
__device__ __forceinline__ BlockHeads block_heads(const Op& op, int group, int part) {
  const int per_group = op.heads / op.groups;
  const int first = part * kBlockHeads;
  return {group, group * per_group + first,
          group * per_group + static_cast<int>(smaller(per_group, first + kBlockHeads))};
}

// The right factors of a head: x scaled by dt, or dy, and the state before the chunk, or dS after
// it.
struct HeadTiles {
  RowsByHead rows;
  StateByHead state;
};
struct RowShared {
  PairSums g;
  union {
    HeadTiles head;
    RowsByState others;  // Used before the first head is loaded.
  };
  TileDecay decay;
  WarpRows out[kWarps];
};

// st(mul(g, Ld)) of sixteen other rows as a left factor, +0 where the earlier row comes after the
// later one. `own_is_later`: the warp's rows are i and the others j; otherwise the reverse.
template <bool own_is_later>
__device__ __forceinline__ void mixing_step(std::uint32_t (&a)[4], const PairSums& g, int s,
                                            const TileDecay& decay, const float (&own_cs)[2]) {
  float m[2][4];
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const int place = 8 * x + 2 * lane_place();
    const float2 cs = *reinterpret_cast<const float2*>(&decay.cs[kStep * s + place]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float other_cs = e % 2 == 0 ? cs.x : cs.y;
      m[x][e] = own_is_later ? sub(own_cs[e / 2], other_cs) : sub(other_cs, own_cs[e / 2]);
    }
  }
  expn_of_eight(m);
  float of_group[2][4];
  g.get(of_group, own_is_later ? sixteen(own_sixteen(), s) : sixteen(s, own_sixteen()));
#pragma unroll
  for (int x = 0; x < 2; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) m[x][e] = mul(of_group[x][e], m[x][e]);
  }
  if (s == own_sixteen()) {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int other = 8 * x + 2 * lane_place() + e % 2;
        const int own = lane_group() + 8 * (e / 2);
        m[x][e] = (own_is_later ? other <= own : own <= other) ? m[x][e] : 0.0f;
      }
    }
  }
  take_a(a, m[0], m[1]);
}

template <int kTiles>
__device__ __forceinline__ void scale_rows(WarpSum<kTiles>& sum, float upper, float lower) {
#pragma unroll
  for (int x = 0; x < kTiles; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.c[x][e] = mul(sum.c[x][e], e / 2 == 0 ? upper : lower);
  }
}
template <int kTiles>
__device__ __forceinline__ void end_chains(WarpSum<kTiles>& sum) {
#pragma unroll
  for (int x = 0; x < kTiles; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.c[x][e] = add(sum.c[x][e], 0.0f);
  }
}

// Loads the lane's elements of a head's channels in its two rows from global memory; +0 past the
// chunk's end.
struct OwnChannels {
  std::uint32_t pair[8][2];

  __device__ __forceinline__ OwnChannels(const In<bf16>& from, const Chunk& chunk,
                                         std::int64_t column) {
    const bf16* const own = row_of(from, chunk, column) + 2 * lane_place();
#pragma unroll
    for (int x = 0; x < 8; ++x) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = 16 * own_sixteen() + lane_group() + 8 * h;
        const bf16* const place = own + i * from.pitch + 8 * x;
        pair[x][h] = i < chunk.rows ? *reinterpret_cast<const std::uint32_t*>(place) : 0;
      }
    }
  }
  __device__ __forceinline__ float operator()(int x, int e) const {
    return e % 2 == 0 ? low_of(pair[x][e / 2]) : high_of(pair[x][e / 2]);
  }
};
// Stores R128 over the channels of the lane's two rows in row_sum, for the dt gradients.
template <class F>
__device__ __forceinline__ void sum_channels(const ScanBackward<bf16>& op, const Chunk& chunk,
                                             int head, RowSum which, F product) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = row_tree(h, product);
    const int i = 16 * own_sixteen() + lane_group() + 8 * h;
    if (lane_place() == 0 && i < chunk.rows) row_sum(op, chunk.index, head, which, i) = sum;
  }
}

// rows[j] = st(mul(rows[j], dt_j)), by the whole block.
__device__ __forceinline__ void scale_by_dt(RowsByHead& rows, const TileDecay& decay) {
#pragma unroll
  for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kTileHead / 8; e += kThreads) {
    Vec8& eight = *reinterpret_cast<Vec8*>(&rows.row[e / 8][e % 8 * 8]);
    const float dt = decay.dt[e / 8];
#pragma unroll
    for (std::uint32_t& pair : eight.pairs) pair = scaled_pair(pair, dt);
  }
}

// Computes y~ of the warp's rows.
__device__ __forceinline__ void outputs(WarpSum<8>& y, const RowShared& shared,
                                        const std::uint32_t (&c)[kStateSteps][4]) {
#pragma unroll
  for (int k = 0; k < kStateSteps; ++k) extend_across(y, c[k], shared.head.state, kStep * k);
  const int own = 16 * own_sixteen() + lane_group();
  const float own_cs[2] = {shared.decay.cs[own], shared.decay.cs[own + 8]};
  scale_rows(y, expn(own_cs[0]), expn(own_cs[1]));
  for (int s = 0; s <= own_sixteen(); ++s) {
    std::uint32_t m[4];
    mixing_step<true>(m, shared.g, s, shared.decay, own_cs);
    extend_across(y, m, shared.head.rows, kStep * s);
  }
  end_chains(y);
}

// h_i of each row, from a recomputed y~.
__device__ __forceinline__ void give_outputs(RowShared& shared, const ScanBackward<bf16>& op,
                                             const Chunk& chunk, const BlockHeads& heads) {
  start_rows(shared.others, op.xbc, chunk, b_column(op, heads.group));
  close_copies();
  std::uint32_t c[kStateSteps][4];
  own_state_steps(c, op.xbc, chunk, c_column(op, heads.group));
  wait_for_copies<0>();
  __syncthreads();
  group_products<true>(shared.g, c, shared.others, chunk.rows);
  const int first = 16 * own_sixteen();
  for (int head = heads.first; head < heads.last; ++head) {
    __syncthreads();  // The previous head has been used.
    start_rows(shared.head.rows, op.xbc, chunk, x_column(op, head));
    start_state(shared.head.state, stored_state(op, chunk.index, head));
    shared.decay.start(op, chunk, head);
    close_copies();
    wait_for_copies<0>();
    __syncthreads();
    scale_by_dt(shared.head.rows, shared.decay);
    __syncthreads();
    if (first >= chunk.rows) continue;
    WarpSum<8> y;
    outputs(y, shared, c);
    const OwnChannels own_dy(op.dy, chunk, x_column(op, head));
    sum_channels(op, chunk, head, kSumH,
                 [&](int x, int e) { return fma(own_dy(x, e), y.c[x][e], 0.0f); });
  }
}

}  // namespace lockstep
