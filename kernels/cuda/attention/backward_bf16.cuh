// Gradients of bf16 attention on the tensor core (arithmetic.md 2.6), in two kinds of tiles that
// are mirror images. A tile owns 64 or 128 rows and walks the rows on the other side of the causal
// triangle, 64 at a time. A tile of keys sums dK and dV over the heads of the group and their
// queries; a tile of queries sums dQ over keys. Blocks take tiles as they become free. In a block
// one warpgroup loads, and one or two compute, with 64 own rows each.
#pragma once

#include "kernels/cuda/attention/tiles.cuh"

namespace lockstep {

inline constexpr int kStreamedRows = 64;  // Rows of the other side at a time.

// `left` holds q or k, `right` dO or v: scores are dot products of lefts, dp of rights.
template <class Block, int kWidth>
struct BackwardShared {
  using Own = HeadPanels<Block::kRows, kWidth>;
  using Streamed = HeadPanels<kStreamedRows, kWidth>;
  static constexpr int kStages = 4;
  alignas(1024) unsigned char own_left[Own::kBytes];
  alignas(1024) unsigned char own_right[Own::kBytes];
  alignas(1024) unsigned char left[kStages][Streamed::kBytes];
  alignas(1024) unsigned char right[kStages][Streamed::kBytes];
  alignas(8) float lse[kStages][kStreamedRows];  // For streamed rows that are queries.
  alignas(8) float delta[kStages][kStreamedRows];
  Tile tile;
  int number;
  Barrier own_full, own_free;
  Barrier full[kStages], free[kStages];

  __device__ void init() {
    own_full.init(kWarpgroup);
    own_free.init(Block::kConsumerWarps);
    for (int b = 0; b < kStages; ++b) {
      full[b].init(kWarpgroup);
      free[b].init(Block::kConsumerWarps);
    }
    fence_barriers();
  }
};

// The streamed rows of a tile in the order of the sums: one head after the other, with rows counted
// from the document's start.
template <bool kKeys, int kTileRows>
struct StreamedTiles {
  int head, head_end, first, begin, end;

  __device__ StreamedTiles(const AttentionBackward<bf16>& op, const Tile& tile) {
    const int group = op.heads / op.kv_heads;
    head = kKeys ? tile.head * group : tile.head / group;
    head_end = head + (kKeys ? group : 1);
    begin = kKeys ? tile.first : 0;
    end = kKeys || tile.length < tile.first + kTileRows ? tile.length : tile.first + kTileRows;
    first = begin;
  }
  __device__ bool any() const { return head < head_end; }
  __device__ void next() {
    first += kStreamedRows;
    if (first < end) return;
    first = begin;
    ++head;
  }
};

// Where the left and right operands of keys, or of queries, lie.
struct Side {
  In<bf16> left_rows, right_rows;
  std::int64_t left, right;
  __device__ Side(const AttentionBackward<bf16>& op, bool keys, int head)
      : left_rows(op.qkv),
        right_rows(keys ? op.qkv : op.dout),
        left(keys ? k_column(op, head) : q_column(op, head)),
        right(keys ? v_column(op, head) : q_column(op, head)) {}
};

template <class Block, bool kKeys, int kWidth>
__device__ __forceinline__ void fetch_tile(
    const AttentionBackward<bf16>& op, BackwardShared<Block, kWidth>& shared, Producer& producer,
    PipelineState<BackwardShared<Block, kWidth>::kStages>& turn, const Tile& tile) {
  using Shared = BackwardShared<Block, kWidth>;
  const Side own(op, kKeys, tile.head);
  const int own_row = tile.start + tile.first;
  const int own_rows = tile.length - tile.first;
  Shared::Own::fill(shared_address(shared.own_left), own.left_rows, own_row, own_rows, own.left,
                    op.head_dim);
  Shared::Own::fill(shared_address(shared.own_right), own.right_rows, own_row, own_rows, own.right,
                    op.head_dim);
  producer.commit(shared.own_full);
  for (StreamedTiles<kKeys, Block::kRows> at_streamed(op, tile); at_streamed.any();
       at_streamed.next(), turn.next()) {
    const Side streamed(op, !kKeys, at_streamed.head);
    const int row = tile.start + at_streamed.first;
    const int rows = tile.length - at_streamed.first;
    const int b = turn.stage;
    producer.acquire(shared.free[b], turn.phase ^ 1);
    Shared::Streamed::fill(shared_address(shared.left[b]), streamed.left_rows, row, rows,
                           streamed.left, op.head_dim);
    Shared::Streamed::fill(shared_address(shared.right[b]), streamed.right_rows, row, rows,
                           streamed.right, op.head_dim);
    const int i = static_cast<int>(threadIdx.x);
    if (kKeys && i < kStreamedRows) {
      shared.lse[b][i] = i < rows ? at(op.lse, row + i, at_streamed.head) : 0.0f;
      shared.delta[b][i] = i < rows ? at(op.delta, row + i, at_streamed.head) : 0.0f;
    }
    producer.commit(shared.full[b]);
  }
}

template <class Block, bool kKeys, int kWidth>
__device__ __forceinline__ void fetch_backward(const AttentionBackward<bf16>& op,
                                               BackwardShared<Block, kWidth>& shared) {
  TileList<kKeys, Block::kRows> tiles(op.cu_seqlens, op.cu_seqlens_padded,
                                      kKeys ? op.kv_heads : op.heads);
  Producer producer;
  PipelineState<1> own;
  PipelineState<BackwardShared<Block, kWidth>::kStages> turn;
  for (;; own.next()) {
    producer.acquire(shared.own_free, own.phase ^ 1);
    if (threadIdx.x == 0) shared.number = atomicAdd(&at(op.next_tile, 0, kKeys ? 0 : 1), 1);
    wait_at(1, kWarpgroup);
    const Tile tile = tiles.at_rank(shared.number);
    if (threadIdx.x == 0) shared.tile = tile;
    if (tile.length == 0) break;
    fetch_tile<Block, kKeys>(op, shared, producer, turn, tile);
  }
  producer.commit(shared.own_full);
  producer.finish();
}

// The state of one consumer warpgroup, in registers, while it walks the streamed rows of its tile.
template <class Block, bool kKeys, int kWidth>
struct GradientTile {
  using Shared = BackwardShared<Block, kWidth>;
  using State = PipelineState<Shared::kStages>;
  static constexpr int kOwnPanel = Shared::Own::kPanel;
  static constexpr int kPanel = Shared::Streamed::kPanel;
  static constexpr int kTiles = kStreamedRows / 8;

  const AttentionBackward<bf16>& op;
  Shared& shared;
  State& turn;
  const Tile tile;
  const std::uint32_t own_left, own_right;
  const float scale;
  const bool is_leader_lane;
  const int own_first;
  const int own[2];
  float own_lse[2] = {};
  float own_delta[2] = {};
  float sum_left[kWidth / 8][4] = {};               // dQ, or dK.
  float sum_right[kKeys ? kWidth / 8 : 1][4] = {};  // dV.
  float s[kTiles][4];
  float dp[kTiles][4];
  std::uint32_t p_steps[kStreamedRows / kStep][4];
  std::uint32_t ds_steps[kStreamedRows / kStep][4];
  StreamedTiles<kKeys, Block::kRows> streamed;

  __device__ __forceinline__ GradientTile(const AttentionBackward<bf16>& of_op, Shared& of_shared,
                                          State& of_turn, int consumer)
      : op(of_op),
        shared(of_shared),
        turn(of_turn),
        tile(shared.tile),
        own_left(shared_address(shared.own_left) + consumer * kOwnRows * kPanelRow),
        own_right(shared_address(shared.own_right) + consumer * kOwnRows * kPanelRow),
        scale(scale_of(op.head_dim)),
        is_leader_lane(lane_index() == 0),
        own_first(tile.first + consumer * kOwnRows),
        own{own_first + own_row(0), own_first + own_row(1)},
        streamed(op, tile) {
#pragma unroll
    for (int h = 0; !kKeys && h < 2; ++h) {
      if (own[h] >= tile.length) continue;
      own_lse[h] = at(op.lse, tile.start + own[h], tile.head);
      own_delta[h] = at(op.delta, tile.start + own[h], tile.head);
    }
  }

  // Advances to the next streamed rows of which some see, or are seen by, a row of the warpgroup.
  // Skipped stages are released at once.
  __device__ __forceinline__ void skip_unseen() {
    for (; streamed.any(); streamed.next(), turn.next()) {
      if (kKeys ? streamed.first + kStreamedRows > own_first
                : streamed.first < own_first + kOwnRows)
        return;
      shared.full[turn.stage].wait(turn.phase);
      if (is_leader_lane) shared.free[turn.stage].arrive();
    }
  }
  __device__ __forceinline__ void start_scores() {
    shared.full[turn.stage].wait(turn.phase);
    warpgroup_arrive();
    start_dots<kWidth, kOwnPanel, kPanel>(s, own_left, shared_address(shared.left[turn.stage]));
    warpgroup_commit();
  }
  __device__ __forceinline__ void start_dp() {
    warpgroup_arrive();
    start_dots<kWidth, kOwnPanel, kPanel>(dp, own_right, shared_address(shared.right[turn.stage]));
    warpgroup_commit();
  }

  // The statistic of the lane's queries: its columns in a tile of keys, its rows in a tile of
  // queries.
  __device__ __forceinline__ float4 statistic(const float (&of_streamed)[kStreamedRows],
                                              const float (&of_own)[2], int t) const {
    if (!kKeys) return float4{of_own[0], of_own[0], of_own[1], of_own[1]};
    const float2 pair = *reinterpret_cast<const float2*>(&of_streamed[8 * t + 2 * lane_place()]);
    return float4{pair.x, pair.y, pair.x, pair.y};
  }
  __device__ __forceinline__ void select_visible(float (&x)[kTiles][4], int first) const {
    const bool cut = kKeys ? first < own_first + kOwnRows || first + kStreamedRows > tile.length
                           : first + kStreamedRows > own_first;
    if (!cut) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int other = first + 8 * t + 2 * lane_place() + e % 2;
        if (kKeys ? other < own[e / 2] || other >= tile.length : other > own[e / 2]) x[t][e] = 0.0f;
      }
    }
  }
  __device__ __forceinline__ void scores_to_p(int stage, int first) {
    warpgroup_fence_operand(s);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const float4 lse = statistic(shared.lse[stage], own_lse, t);
      s[t][0] = sub(mul(s[t][0], scale), lse.x);
      s[t][1] = sub(mul(s[t][1], scale), lse.y);
      s[t][2] = sub(mul(s[t][2], scale), lse.z);
      s[t][3] = sub(mul(s[t][3], scale), lse.w);
      expn_of_numbers(s[t]);
    }
    select_visible(s, first);
  }
  __device__ __forceinline__ void dp_to_ds(int stage, int first) {
    warpgroup_fence_operand(dp);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const float4 delta = statistic(shared.delta[stage], own_delta, t);
      dp[t][0] = mul(s[t][0], sub(dp[t][0], delta.x));
      dp[t][1] = mul(s[t][1], sub(dp[t][1], delta.y));
      dp[t][2] = mul(s[t][2], sub(dp[t][2], delta.z));
      dp[t][3] = mul(s[t][3], sub(dp[t][3], delta.w));
    }
    select_visible(dp, first);
#pragma unroll
    for (int k = 0; k < kStreamedRows / kStep; ++k) {
      if (kKeys) take_a(p_steps[k], s[2 * k], s[2 * k + 1]);
      take_a(ds_steps[k], dp[2 * k], dp[2 * k + 1]);
    }
  }
  __device__ __forceinline__ void start_all_sums(int stage) {
    warpgroup_arrive();
    if constexpr (kKeys)
      start_sums<kPanel>(sum_right, p_steps, shared_address(shared.right[stage]));
    start_sums<kPanel>(sum_left, ds_steps, shared_address(shared.left[stage]));
    warpgroup_commit();
  }
  __device__ __forceinline__ void finish_sums(int stage) {
    warpgroup_fence_operand(sum_left);
    warpgroup_fence_operand(sum_right);
    if (is_leader_lane) shared.free[stage].arrive();
  }

  // Sums dK and dV of the tile's keys. Registers suffice for the products of one step at a time
  // only.
  __device__ __forceinline__ void sum_over_queries() {
    while (streamed.any()) {
      const int stage = turn.stage;
      start_scores();
      start_dp();
      warpgroup_wait<1>();
      scores_to_p(stage, streamed.first);
      warpgroup_wait<0>();
      dp_to_ds(stage, streamed.first);
      start_all_sums(stage);
      warpgroup_wait<0>();
      finish_sums(stage);
      streamed.next();
      turn.next();
      skip_unseen();
    }
  }
  // Sums dQ of the tile's queries. While scores become p, dp and the previous step's sums run.
  __device__ __forceinline__ void sum_over_keys() {
    int last = -1;
    warpgroup_fence_operand(sum_left);
    start_scores();
    warpgroup_commit();  // An empty group in place of sums.
    start_dp();
    for (;;) {
      const int first = streamed.first;
      const int stage = turn.stage;
      const std::uint32_t phase = turn.phase;
      warpgroup_wait<2>();
      scores_to_p(stage, first);
      warpgroup_fence_operand(s);
      shared.full[stage].wait(
          phase);  // Already complete. The branch keeps the assembler from waiting earlier.
      warpgroup_wait<1>();
      if (last >= 0) finish_sums(last);
      warpgroup_wait<0>();
      dp_to_ds(stage, first);
      last = stage;
      streamed.next();
      turn.next();
      skip_unseen();
      if (!streamed.any()) break;
      start_scores();
      start_all_sums(stage);
      start_dp();
    }
    start_all_sums(last);
    warpgroup_wait<0>();
    finish_sums(last);
  }
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (own[h] >= tile.length) continue;
      bf16* const row = op.dqkv.data + (tile.start + own[h]) * op.dqkv.pitch;
      const Side side(op, kKeys, tile.head);
      store_own(row + side.left, op.head_dim, sum_left, h, [&](float x) { return mul(x, scale); });
      if constexpr (kKeys)
        store_own(row + side.right, op.head_dim, sum_right, h, [](float x) { return x; });
    }
  }
};

// Computes the gradients of the tile that the producer has announced.
template <class Block, bool kKeys, int kWidth>
__device__ __forceinline__ void differentiate(
    const AttentionBackward<bf16>& op, BackwardShared<Block, kWidth>& shared,
    PipelineState<BackwardShared<Block, kWidth>::kStages>& turn) {
  const int consumer = static_cast<int>(threadIdx.x) / kWarpgroup - 1;
  GradientTile<Block, kKeys, kWidth> gradients(op, shared, turn, consumer);
  gradients.skip_unseen();
  if constexpr (kKeys) {
    gradients.sum_over_queries();
  } else {
    gradients.sum_over_keys();
  }
  if (gradients.is_leader_lane) shared.own_free.arrive();
  gradients.store();
}

template <class Block, bool kKeys, int kWidth>
__global__ void __launch_bounds__(Block::kThreads, 1)
    attention_backward_bf16(const __grid_constant__ AttentionBackward<bf16> op) {
  // Tiles of queries start where blocks of keys have ended, since they need none of their results.
  if (kKeys) pdl_wait();
  if (kKeys) pdl_trigger();
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<BackwardShared<Block, kWidth>*>(memory);
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    if (Block::kConsumers > 1) give_registers<40>();
    fetch_backward<Block, kKeys>(op, shared);
  } else {
    if (Block::kConsumers > 1) take_registers<232>();
    PipelineState<1> own;
    PipelineState<BackwardShared<Block, kWidth>::kStages> turn;
    for (;; own.next()) {
      shared.own_full.wait(own.phase);
      if (shared.tile.length == 0) break;
      differentiate<Block, kKeys>(op, shared, turn);
    }
  }
  if (!kKeys) pdl_wait();  // Kernels after this one also rely on the end of the key tiles.
}

// Four neighbours, loaded at once.
struct alignas(8) Four {
  bf16 value[4];
};
// Computes delta of every row, one warp per row with one head after the other, writes +0 to the
// gradients of rows of no document, and resets the tile counters.
__global__ void __launch_bounds__(kThreads)
    attention_prepare_backward(const __grid_constant__ AttentionBackward<bf16> op) {
  pdl_begin();
  const std::int64_t row = warp_item();
  if (row == 0 && lane_index() < 2) at(op.next_tile, 0, lane_index()) = 0;
  if (row >= op.o.rows) return;
  if (at(op.row_document, 0, row) < 0) {
    for (std::int64_t e = lane_index(); e < op.dqkv.cols; e += kWarp)
      at(op.dqkv, row, e) = st<bf16>(0.0f);
    return;
  }
  const bf16* const o = &at(op.o, row, 0);
  const bf16* const dout = &at(op.dout, row, 0);
  const bool fours =
      (reinterpret_cast<std::uintptr_t>(o) | reinterpret_cast<std::uintptr_t>(dout)) % 8 == 0;
  const int hd = op.head_dim;
  if (fours && hd % 4 == 0 &&
      hd <= 128) {  // Each of a lane's four accumulators of R128 has one term.
    const int e = 4 * lane_index();
#pragma unroll 4
    for (int head = 0; head < op.heads; ++head) {
      Four a = {};
      Four b = {};
      if (e < hd) {
        a = *reinterpret_cast<const Four*>(o + head * hd + e);
        b = *reinterpret_cast<const Four*>(dout + head * hd + e);
      }
      Accumulators terms;
#pragma unroll
      for (int c = 0; c < 4; ++c) terms.acc[c] = fma(load(a.value[c]), load(b.value[c]), 0.0f);
      const float delta = add(tree128(terms), 0.0f);
      if (lane_index() == 0) at(op.delta, row, head) = delta;
    }
  } else {
    for (int head = 0; head < op.heads; ++head) {
      const float delta = r128(hd, [&](std::int64_t e, float acc) {
        return fma(load(o[head * hd + e]), load(dout[head * hd + e]), acc);
      });
      if (lane_index() == 0) at(op.delta, row, head) = delta;
    }
  }
}

}  // namespace lockstep
