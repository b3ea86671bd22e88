// bf16 attention on the tensor core (arithmetic.md 2.6). A block takes one tile of query rows after
// the other. One warpgroup loads keys and values; one or two compute, with 64 rows each, so that
// the products of one overlap with the softmax of the other.
#pragma once

#include "kernels/cuda/attention/tiles.cuh"

namespace lockstep {

inline constexpr int kKeyBlock = 128;  // KB of arithmetic.md 2.6: what m, l and o are rescaled by.
static_assert(kKeyBlock % kOwnRows == 0,
              "a tile's last block of keys is the only one on the diagonal");

template <class Block, int kWidth>
struct ForwardShared {
  static_assert(Block::kRows <= kKeyBlock);
  using Queries = HeadPanels<Block::kRows, kWidth>;
  using Panels = HeadPanels<kKeyBlock, kWidth>;
  static constexpr int kStages = 2;
  alignas(1024) unsigned char q[Queries::kBytes];
  alignas(1024) unsigned char k[kStages][Panels::kBytes];
  alignas(1024) unsigned char v[kStages][Panels::kBytes];
  Tile tile;
  Barrier q_full, q_free;
  Barrier k_full[kStages], k_free[kStages];
  Barrier v_full[kStages], v_free[kStages];

  __device__ void init() {
    q_full.init(kWarpgroup);
    q_free.init(Block::kConsumerWarps);
    for (int b = 0; b < kStages; ++b) {
      k_full[b].init(kWarpgroup);
      v_full[b].init(kWarpgroup);
      k_free[b].init(Block::kConsumerWarps);
      v_free[b].init(Block::kConsumerWarps);
    }
    fence_barriers();
  }
};

template <class Block, int kWidth>
__device__ __forceinline__ void fetch_forward(const AttentionForward<bf16>& op,
                                              ForwardShared<Block, kWidth>& shared) {
  using Shared = ForwardShared<Block, kWidth>;
  TileList<false, Block::kRows> tiles(op.cu_seqlens, op.cu_seqlens_padded, op.heads);
  Producer producer;
  PipelineState<1> q;
  PipelineState<Shared::kStages> kv;
  for (int round = 0;; ++round, q.next()) {
    const Tile tile = tiles.at_rank(rank_of(round));
    producer.acquire(shared.q_free, q.phase ^ 1);
    if (threadIdx.x == 0) shared.tile = tile;
    const int rows = tile.length - tile.first;
    if (tile.length > 0) {
      Shared::Queries::fill(shared_address(shared.q), op.qkv, tile.start + tile.first, rows,
                            q_column(op, tile.head), op.head_dim);
    }
    producer.commit(shared.q_full);
    if (tile.length == 0) break;
    const int kv_head = tile.head / (op.heads / op.kv_heads);
    for (int j = 0; j <= tile.first; j += kKeyBlock, kv.next()) {
      producer.acquire(shared.k_free[kv.stage], kv.phase ^ 1);
      Shared::Panels::fill(shared_address(shared.k[kv.stage]), op.qkv, tile.start + j,
                           tile.length - j, k_column(op, kv_head), op.head_dim);
      producer.commit(shared.k_full[kv.stage]);
      producer.acquire(shared.v_free[kv.stage], kv.phase ^ 1);
      Shared::Panels::fill(shared_address(shared.v[kv.stage]), op.qkv, tile.start + j,
                           tile.length - j, v_column(op, kv_head), op.head_dim);
      producer.commit(shared.v_full[kv.stage]);
    }
  }
  producer.finish();
}

// The maximum over the four lanes that share a row.
__device__ __forceinline__ float row_max(float m) {
  m = max_of(m, __shfl_xor_sync(kAllLanes, m, 1));
  return max_of(m, __shfl_xor_sync(kAllLanes, m, 2));
}
// Lane c of a row holds l_c.
__device__ __forceinline__ float row_sum(float l) {
  l = add(l, __shfl_xor_sync(kAllLanes, l, 1));
  return add(l, __shfl_xor_sync(kAllLanes, l, 2));
}

// The running softmax of the lane's two rows. Columns 2c and 2c + 1 of every eight keys belong to
// l_c.
struct Softmax {
  float m[2] = {neg(infinity()), neg(infinity())};
  float l[2] = {};

  // Turns s, the scores of a block of keys, into p. al[h] is the factor by which o is rescaled.
  __device__ __forceinline__ void advance(float (&s)[kKeyBlock / 8][4], float scale,
                                          float (&al)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest[4] = {m[h], m[h], m[h], m[h]};
#pragma unroll
      for (int x = 0; x < kKeyBlock / 8; ++x) {
#pragma unroll
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          s[x][e] = mul(s[x][e], scale);
          float& part = largest[2 * (x % 2) + e % 2];
          part = max_of(part, s[x][e]);
        }
      }
      const float next = add(
          row_max(max_of(max_of(largest[0], largest[1]), max_of(largest[2], largest[3]))), 0.0f);
      al[h] = expn(sub(m[h], next));
      m[h] = next;
      l[h] = mul(l[h], al[h]);
    }
#pragma unroll
    for (int x = 0; x < kKeyBlock / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[x][e] = sub(s[x][e], m[e / 2]);
      expn_of_numbers(s[x]);
#pragma unroll
      for (int e = 0; e < 4; ++e) l[e / 2] = add(l[e / 2], s[x][e]);
    }
  }
};

// Masks scores of keys that come after the query. `own` are the lane's two rows in the tile;
// `before` keys of the block precede the tile.
__device__ __forceinline__ void mask_future_keys(float (&s)[kKeyBlock / 8][4], const int (&own)[2],
                                                 int before) {
#pragma unroll
  for (int x = 0; x < kKeyBlock / 8; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (8 * x + 2 * lane_place() + e % 2 > own[e / 2] + before) s[x][e] = neg(infinity());
    }
  }
}

// Writes the lane's two rows of O, divided by the sum of their weights, and their LSE. The lanes of
// a warp raise the amax of O together.
template <int kTiles>
__device__ __forceinline__ void store_tile(const AttentionForward<bf16>& op, const Tile& tile,
                                           const int (&own)[2], const Softmax& softmax,
                                           const float (&o)[kTiles][4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float l = add(row_sum(softmax.l[h]), 0.0f);
    const float inverse = div(1.0f, l);
    if (tile.first + own[h] >= tile.length) continue;
    const std::int64_t row = tile.start + tile.first + own[h];
    if (lane_place() == 0) at(op.lse, row, tile.head) = add(softmax.m[h], log(l));
    const StoredMagnitudes stored = store_own(&at(op.o, row, q_column(op, tile.head)), op.head_dim,
                                              o, h, [&](float x) { return mul(x, inverse); });
    if (op.amax.data != nullptr) raise_amax(op.amax.data, stored);
  }
}

template <class Block, int kWidth>
__device__ __forceinline__ void attend(const AttentionForward<bf16>& op,
                                       ForwardShared<Block, kWidth>& shared) {
  using Shared = ForwardShared<Block, kWidth>;
  constexpr int kQueryPanel = Shared::Queries::kPanel;
  constexpr int kPanel = Shared::Panels::kPanel;
  const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const std::uint32_t own_q = shared_address(shared.q) + consumer * kOwnRows * kPanelRow;
  const int own[2] = {consumer * kOwnRows + own_row(0), consumer * kOwnRows + own_row(1)};
  const float scale = scale_of(op.head_dim);
  const bool is_leader_lane = lane_index() == 0;
  // Two warpgroups take turns in starting products, so that one's softmax overlaps with the other's
  // products.
  constexpr bool kTurns = Block::kConsumers == 2;
  const auto await_turn = [&] {
    if (kTurns) wait_at(1 + consumer, 2 * kWarpgroup);
  };
  const auto end_turn = [&] {
    if (kTurns) arrive_at(2 - consumer, 2 * kWarpgroup);
  };
  if (consumer == 1) end_turn();
  PipelineState<1> q;
  PipelineState<Shared::kStages> k, v;
  for (;; q.next()) {
    shared.q_full.wait(q.phase);
    const Tile tile = shared.tile;
    if (tile.length == 0) break;
    Softmax softmax;
    float al[2];
    float s[kKeyBlock / 8][4];
    float o[kWidth / 8][4] = {};
    std::uint32_t p[kKeyBlock / kStep][4];

    const auto start_scores = [&] {
      shared.k_full[k.stage].wait(k.phase);
      warpgroup_arrive();
      start_dots<kWidth, kQueryPanel, kPanel>(s, own_q, shared_address(shared.k[k.stage]));
      warpgroup_commit();
    };
    const auto start_values = [&] {
      shared.v_full[v.stage].wait(v.phase);
      warpgroup_arrive();
      start_sums<kPanel>(o, p, shared_address(shared.v[v.stage]));
      warpgroup_commit();
    };
    // Called when s is complete and the keys have been used.
    const auto scores_to_weights = [&](int j) {
      warpgroup_fence_operand(s);
      if (is_leader_lane) shared.k_free[k.stage].arrive();
      k.next();
      constexpr bool kOneBlock = Block::kRows == kKeyBlock;
      if (kOneBlock ? j == tile.first : j + kKeyBlock > tile.first) {
        const int before =
            kOneBlock ? 0 : tile.first - j;  // Keys of the block that come before the tile.
        if (is_leader_lane) shared.q_free.arrive();
        mask_future_keys(s, own, before);
      }
      softmax.advance(s, scale, al);
      warpgroup_fence_operand(s);  // The products with the values still run.
    };
    const auto values_done = [&] {
      // Already complete. The branch keeps the assembler from waiting for the products before the
      // softmax.
      shared.v_full[v.stage].wait(v.phase);
      warpgroup_wait<0>();
      warpgroup_fence_operand(o);
      if (is_leader_lane) shared.v_free[v.stage].arrive();
      v.next();
    };
    const auto take_weights = [&] {
#pragma unroll
      for (int x = 0; x < kKeyBlock / kStep; ++x) take_a(p[x], s[2 * x], s[2 * x + 1]);
    };

    await_turn();
    start_scores();
    end_turn();
    warpgroup_wait<0>();
    scores_to_weights(0);
    take_weights();
    for (int j = kKeyBlock; j <= tile.first; j += kKeyBlock) {
      await_turn();
      start_scores();
      start_values();
      end_turn();
      warpgroup_wait<1>();
      scores_to_weights(j);
      values_done();
#pragma unroll
      for (int x = 0; x < kWidth / 8; ++x) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[x][e] = mul(o[x][e], al[e / 2]);
      }
      take_weights();
    }
    start_values();
    values_done();

    store_tile(op, tile, own, softmax, o);
  }
}

template <class Block, int kWidth>
__global__ void __launch_bounds__(Block::kThreads, 1)
    attention_forward_bf16(const __grid_constant__ AttentionForward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Block, kWidth>*>(memory);
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    if (Block::kConsumers > 1) give_registers<40>();
    fetch_forward(op, shared);
  } else {
    if (Block::kConsumers > 1) take_registers<232>();
    clear_unowned(op.row_document, op.o, 0, op.o.cols);
    clear_unowned(op.row_document, op.lse, 0, op.lse.cols);
    attend(op, shared);
  }
}

}  // namespace lockstep
