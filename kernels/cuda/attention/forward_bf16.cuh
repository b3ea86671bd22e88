// bf16 attention on the tensor core (arithmetic.md 2.6): a block takes one tile of query rows after the other. A
// warpgroup fetches keys and values, one or two compute, 64 rows each: while one is at its softmax, the other's
// products run.
#pragma once

#include "kernels/cuda/attention/tiles.cuh"

namespace lockstep {

inline constexpr int kKeyBlock = 128;  // KB of arithmetic.md 2.6: what m, l and o are rescaled by.
static_assert(kKeyBlock % kOwnRows == 0, "a tile's last block of keys is the only one on the diagonal");

template <class Block, int kWidth>
struct ForwardShared {
  static_assert(Block::kRows <= kKeyBlock);
  using Queries = HeadPanels<Block::kRows, kWidth>;
  using Panels = HeadPanels<kKeyBlock, kWidth>;
  static constexpr int kBuffers = 2;
  alignas(1024) unsigned char q[Queries::kBytes];
  alignas(1024) unsigned char k[kBuffers][Panels::kBytes];
  alignas(1024) unsigned char v[kBuffers][Panels::kBytes];
  Tile tile;
  Barrier q_full, q_free;
  Barrier k_full[kBuffers], k_free[kBuffers];
  Barrier v_full[kBuffers], v_free[kBuffers];

  __device__ void init() {
    q_full.init(kWarpgroup);
    q_free.init(Block::kUserWarps);
    for (int b = 0; b < kBuffers; ++b) {
      k_full[b].init(kWarpgroup);
      v_full[b].init(kWarpgroup);
      k_free[b].init(Block::kUserWarps);
      v_free[b].init(Block::kUserWarps);
    }
    fence_barriers();
  }
};

template <class Block, int kWidth>
__device__ __forceinline__ void fetch_forward(const AttentionForward<bf16>& op, ForwardShared<Block, kWidth>& shared) {
  using Shared = ForwardShared<Block, kWidth>;
  TileList<false, Block::kRows> tiles(op.document_start, op.document_length, op.heads);
  Fetcher fetcher;
  Turn<1> q;
  Turn<Shared::kBuffers> kv;
  for (int round = 0;; ++round, q.next()) {
    const Tile tile = tiles.at_rank(rank_of(round));
    fetcher.await_free(shared.q_free, q.parity ^ 1);
    if (threadIdx.x == 0) shared.tile = tile;
    const int rows = tile.length - tile.first;
    if (tile.length > 0) {
      Shared::Queries::fill(shared_address(shared.q), op.qkv, tile.start + tile.first, rows, q_column(op, tile.head),
                            op.head_dim);
    }
    fetcher.fetched(shared.q_full);
    if (tile.length == 0) break;
    const int kv_head = tile.head / (op.heads / op.kv_heads);
    for (int j = 0; j <= tile.first; j += kKeyBlock, kv.next()) {
      fetcher.await_free(shared.k_free[kv.buffer], kv.parity ^ 1);
      Shared::Panels::fill(shared_address(shared.k[kv.buffer]), op.qkv, tile.start + j, tile.length - j,
                           k_column(op, kv_head), op.head_dim);
      fetcher.fetched(shared.k_full[kv.buffer]);
      fetcher.await_free(shared.v_free[kv.buffer], kv.parity ^ 1);
      Shared::Panels::fill(shared_address(shared.v[kv.buffer]), op.qkv, tile.start + j, tile.length - j,
                           v_column(op, kv_head), op.head_dim);
      fetcher.fetched(shared.v_full[kv.buffer]);
    }
  }
  fetcher.finish();
}

// The four lanes of a row.
__device__ __forceinline__ float row_max(float m) {
  m = max_of(m, __shfl_xor_sync(kAllLanes, m, 1));
  return max_of(m, __shfl_xor_sync(kAllLanes, m, 2));
}
// Lane c of a row holds l_c.
__device__ __forceinline__ float row_sum(float l) {
  l = add(l, __shfl_xor_sync(kAllLanes, l, 1));
  return add(l, __shfl_xor_sync(kAllLanes, l, 2));
}

// The running softmax of the lane's two rows. The columns 2c and 2c + 1 of every eight keys belong to l_c.
struct Softmax {
  float m[2] = {neg(infinity()), neg(infinity())};
  float l[2] = {};

  // s: a block's products with the keys; p afterwards. al[h]: what o is rescaled by.
  __device__ __forceinline__ void advance(float (&s)[kKeyBlock / 8][4], float scale, float (&al)[2]) {
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
      const float next = add(row_max(max_of(max_of(largest[0], largest[1]), max_of(largest[2], largest[3]))), 0.0f);
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

template <class Block, int kWidth>
__device__ __forceinline__ void attend(const AttentionForward<bf16>& op, ForwardShared<Block, kWidth>& shared) {
  using Shared = ForwardShared<Block, kWidth>;
  constexpr int kQueryPanel = Shared::Queries::kPanel;
  constexpr int kPanel = Shared::Panels::kPanel;
  const int user = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  const std::uint32_t own_q = shared_address(shared.q) + user * kOwnRows * kPanelRow;
  const int own[2] = {user * kOwnRows + own_row(0), user * kOwnRows + own_row(1)};
  const float scale = scale_of(op.head_dim);
  const bool speaks = lane_index() == 0;
  // Two warpgroups take turns in starting products: one's softmax then falls together with the other's products.
  constexpr bool kTurns = Block::kUsers == 2;
  const auto await_turn = [&] {
    if (kTurns) wait_at(1 + user, 2 * kWarpgroup);
  };
  const auto end_turn = [&] {
    if (kTurns) arrive_at(2 - user, 2 * kWarpgroup);
  };
  if (user == 1) end_turn();
  Turn<1> q;
  Turn<Shared::kBuffers> k, v;
  for (;; q.next()) {
    shared.q_full.wait(q.parity);
    const Tile tile = shared.tile;
    if (tile.length == 0) break;
    Softmax softmax;
    float al[2];
    float s[kKeyBlock / 8][4];
    float o[kWidth / 8][4] = {};
    std::uint32_t p[kKeyBlock / kStep][4];

    const auto start_scores = [&] {
      shared.k_full[k.buffer].wait(k.parity);
      open_products();
      start_dots<kWidth, kQueryPanel, kPanel>(s, own_q, shared_address(shared.k[k.buffer]));
      close_products();
    };
    const auto start_values = [&] {
      shared.v_full[v.buffer].wait(v.parity);
      open_products();
      start_sums<kPanel>(o, p, shared_address(shared.v[v.buffer]));
      close_products();
    };
    // s is there, and the keys have been used.
    const auto scores_to_weights = [&](int j) {
      settle(s);
      if (speaks) shared.k_free[k.buffer].arrive();
      k.next();
      constexpr bool kOneBlock = Block::kRows == kKeyBlock;
      if (kOneBlock ? j == tile.first : j + kKeyBlock > tile.first) {
        const int before = kOneBlock ? 0 : tile.first - j;  // Keys of the block that come before the tile.
        if (speaks) shared.q_free.arrive();
#pragma unroll
        for (int x = 0; x < kKeyBlock / 8; ++x) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (8 * x + 2 * lane_place() + e % 2 > own[e / 2] + before) s[x][e] = neg(infinity());
          }
        }
      }
      softmax.advance(s, scale, al);
      settle(s);  // While the products with the values run.
    };
    const auto values_done = [&] {
      // They are there. The branch keeps the assembler from waiting for products before the softmax.
      shared.v_full[v.buffer].wait(v.parity);
      wait_for_products<0>();
      settle(o);
      if (speaks) shared.v_free[v.buffer].arrive();
      v.next();
    };
    const auto take_weights = [&] {
#pragma unroll
      for (int x = 0; x < kKeyBlock / kStep; ++x) take_a(p[x], s[2 * x], s[2 * x + 1]);
    };

    await_turn();
    start_scores();
    end_turn();
    wait_for_products<0>();
    scores_to_weights(0);
    take_weights();
    for (int j = kKeyBlock; j <= tile.first; j += kKeyBlock) {
      await_turn();
      start_scores();
      start_values();
      end_turn();
      wait_for_products<1>();
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

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float l = add(row_sum(softmax.l[h]), 0.0f);
      const float inverse = div(1.0f, l);
      if (tile.first + own[h] >= tile.length) continue;
      const std::int64_t row = tile.start + tile.first + own[h];
      if (lane_place() == 0) at(op.lse, row, tile.head) = add(softmax.m[h], log(l));
      store_own(&at(op.o, row, q_column(op, tile.head)), op.head_dim, o, h, [&](float x) { return mul(x, inverse); });
    }
  }
}

template <class Block, int kWidth>
__global__ void __launch_bounds__(Block::kThreads, 1)
    attention_forward_bf16(const __grid_constant__ AttentionForward<bf16> op) {
  start_after_last_kernel();
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<ForwardShared<Block, kWidth>*>(memory);
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    if (Block::kUsers > 1) give_registers<40>();
    fetch_forward(op, shared);
  } else {
    if (Block::kUsers > 1) take_registers<232>();
    clear_unowned(op.row_document, op.o, 0, op.o.cols);
    clear_unowned(op.row_document, op.lse, 0, op.lse.cols);
    attend(op, shared);
  }
}

}  // namespace lockstep
