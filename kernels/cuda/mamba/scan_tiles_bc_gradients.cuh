// dC and dB in tiles. One block of eight warps per (chunk, group); KK and the sums over heads grow
// in registers. KKb is computed with dC and kept in scratch for dB, in 16 x 16 tiles of the lower
// triangle.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_row_outputs.cuh"

namespace lockstep {

using Sixteen = bf16[kStep][kStep];
static_assert(ScratchLayout::kPairs + kSixteens * sizeof(Sixteen) / sizeof(float) <=
              ScratchLayout::kDecays);
__device__ __forceinline__ Sixteen* stored_pairs(const ScanBackward<bf16>& op, std::int64_t chunk,
                                                 int first_head) {
  return reinterpret_cast<Sixteen*>(head_part(op.states, chunk, first_head) +
                                    ScratchLayout::kPairs);
}

struct HeadStage {
  RowsByHead x, dy;
  StateByHead state;
};
struct GroupOutputsShared {
  PairSums kk;
  union {
    HeadStage head;
    RowsByState b;  // After the last head.
  };
  TileDecay decay;
  WarpRows out[kWarps];
};
struct GroupInputsShared {
  struct {
    RowsByHead x;
    StateByHead state;
    TileDecay decay;
  } stage[2];
  Sixteen pairs[kSixteens];
  WarpRows out[kWarps];
};

// Stores a warp's 16 rows of 128 columns, in two halves.
__device__ __forceinline__ void store_sums(WarpRows& stage, const Out<bf16>& to, const Chunk& chunk,
                                           std::int64_t column,
                                           const WarpSum<2 * kStateSteps>& sum) {
  const int first = 16 * own_sixteen();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    store_rows(stage, to.data + (chunk.start + first) * to.pitch + column + 64 * half, to.pitch,
               chunk.rows - first, [&](int x, int e) { return add(sum.c[8 * half + x][e], 0.0f); });
  }
}
// Loads the warp's rows of a tile as left factors over the head's channels; the next function also
// scales them by a factor per row.
__device__ __forceinline__ void own_steps(std::uint32_t (&a)[kHeadSteps][4],
                                          const RowsByHead& tile) {
#pragma unroll
  for (int k = 0; k < kHeadSteps; ++k) left_along(a[k], tile, 16 * own_sixteen(), kStep * k);
}
__device__ __forceinline__ void scale_steps(std::uint32_t (&a)[kHeadSteps][4], float upper,
                                            float lower) {
#pragma unroll
  for (int k = 0; k < kHeadSteps; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[k][r] = scaled_pair(a[k][r], r % 2 == 0 ? upper : lower);
  }
}

// Adds mul(DOT over P of dy_i, xd_j, Ld_ij) to kk for the warp's rows i and every sixteen j up to
// them.
__device__ __forceinline__ void add_pairs(GroupOutputsShared& shared,
                                          const std::uint32_t (&dy)[kHeadSteps][4], bool is_first) {
  const int own = 16 * own_sixteen() + lane_group();
  const float own_cs[2] = {shared.decay.cs[own], shared.decay.cs[own + 8]};
  for (int s = 0; s <= own_sixteen(); ++s) {
    WarpSum<2> dot;
#pragma unroll
    for (int k = 0; k < kHeadSteps; ++k) {
      std::uint32_t b[2][2];
      right_along(b, shared.head.x, 16 * s, kStep * k);
      fda16(dot.c[0], dy[k], b[0]);
      fda16(dot.c[1], dy[k], b[1]);
    }
    float between[2][4];
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float2 cs =
          *reinterpret_cast<const float2*>(&shared.decay.cs[16 * s + 8 * x + 2 * lane_place()]);
#pragma unroll
      for (int e = 0; e < 4; ++e) between[x][e] = sub(own_cs[e / 2], e % 2 == 0 ? cs.x : cs.y);
    }
    expn_of_eight(between);
    float kk[2][4] = {};
    if (!is_first) shared.kk.get(kk, sixteen(own_sixteen(), s));
#pragma unroll
    for (int x = 0; x < 2; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = 16 * s + 8 * x + 2 * lane_place() + e % 2;
        const float pair = mul(dot.c[x][e], between[x][e]);
        kk[x][e] = add(kk[x][e], j <= own + 8 * (e / 2) ? pair : 0.0f);
      }
    }
    shared.kk.set(sixteen(own_sixteen(), s), kk);
  }
}

__device__ __forceinline__ void give_group_outputs(GroupOutputsShared& shared,
                                                   const ScanBackward<bf16>& op, const Chunk& chunk,
                                                   int group) {
  const int heads = op.heads / op.groups;
  const int first_head = group * heads;
  const int own = 16 * own_sixteen() + lane_group();
  const bool has_rows = 16 * own_sixteen() < chunk.rows;
  WarpSum<2 * kStateSteps> dc;
  for (int head = first_head; head < first_head + heads; ++head) {
    __syncthreads();  // The previous head has been used.
    start_rows(shared.head.x, op.xbc, chunk, x_column(op, head));
    start_rows(shared.head.dy, op.dy, chunk, x_column(op, head));
    start_state(shared.head.state, stored_state(op, chunk.index, head));
    shared.decay.start(op, chunk, head);
    close_copies();
    wait_for_copies<0>();
    __syncthreads();
    scale_by_dt(shared.head.x, shared.decay);
    __syncthreads();
    if (!has_rows) continue;
    std::uint32_t dy[kHeadSteps][4];
    own_steps(dy, shared.head.dy);
    add_pairs(shared, dy, head == first_head);
    scale_steps(dy, expn(shared.decay.cs[own]), expn(shared.decay.cs[own + 8]));
#pragma unroll
    for (int k = 0; k < kHeadSteps; ++k) extend_along(dc, dy[k], shared.head.state, kStep * k);
  }
  __syncthreads();
  start_rows(shared.b, op.xbc, chunk, b_column(op, group));
  close_copies();
  wait_for_copies<0>();
  __syncthreads();
  if (!has_rows) return;
  Sixteen* const pairs = stored_pairs(op, chunk.index, first_head);
  for (int s = 0; s <= own_sixteen(); ++s) {
    const int index = sixteen(own_sixteen(), s);
    WarpSum<2> kk;
    shared.kk.get(kk.c, index);
    end_chains(kk);
    std::uint32_t a[4];
    take_a(a, kk.c[0], kk.c[1]);
    extend_across(dc, a, shared.b, kStep * s);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      *reinterpret_cast<std::uint32_t*>(
          &pairs[index][lane_group() + 8 * (r % 2)][2 * lane_place() + 8 * (r / 2)]) = a[r];
    }
  }
  store_sums(shared.out[warp_index()], op.dxbc, chunk, c_column(op, group), dc);
}

__device__ __forceinline__ void give_group_inputs(GroupInputsShared& shared,
                                                  const ScanBackward<bf16>& op, const Chunk& chunk,
                                                  int group) {
  const int heads = op.heads / op.groups;
  const int first_head = group * heads;
  const auto start = [&](auto& stage, int head) {
    start_rows(stage.x, op.xbc, chunk, x_column(op, head));
    start_state(stage.state, stored_dstate(op, chunk.index, head));
    stage.decay.start_kept(kept_decays(op, chunk.index, head));
  };
  start(shared.stage[0], first_head);
  close_copies();
  const Vec8* const pairs =
      reinterpret_cast<const Vec8*>(stored_pairs(op, chunk.index, first_head));
  const int row_steps = (chunk.rows + kStep - 1) / kStep;
  for (int e = static_cast<int>(threadIdx.x);
       e < row_steps * (row_steps + 1) / 2 * kStep * kStep / 8; e += kThreads) {
    reinterpret_cast<Vec8*>(shared.pairs)[e] = pairs[e];
  }
  const int own = 16 * own_sixteen() + lane_group();
  WarpSum<2 * kStateSteps> db;
  for (int h = 0; h < heads; ++h) {
    auto& stage = shared.stage[h % 2];
    __syncthreads();  // The other stage has been used.
    if (h + 1 < heads) start(shared.stage[(h + 1) % 2], first_head + h + 1);
    close_copies();
    wait_for_copies<1>();
    __syncthreads();
    std::uint32_t xw[kHeadSteps][4];
    own_steps(xw, stage.x);
    scale_steps(xw, mul(stage.decay.to_end(own), stage.decay.dt[own]),
                mul(stage.decay.to_end(own + 8), stage.decay.dt[own + 8]));
#pragma unroll
    for (int k = 0; k < kHeadSteps; ++k) extend_along(db, xw[k], stage.state, kStep * k);
  }
  __syncthreads();
  RowsByState& c = reinterpret_cast<RowsByState&>(shared.stage[0]);
  static_assert(sizeof(c) <= sizeof(shared.stage[0]));
  start_rows(c, op.xbc, chunk, c_column(op, group));
  close_copies();
  wait_for_copies<0>();
  __syncthreads();
  for (int s = own_sixteen(); s < row_steps; ++s) {
    std::uint32_t a[4];
    const int q = lane_index() / 8;
    take_blocks_across(
        a[0], a[1], a[2], a[3],
        &shared.pairs[sixteen(s, own_sixteen())][q / 2 * 8 + lane_index() % 8][q % 2 * 8]);
    extend_across(db, a, c, kStep * s);
  }
  store_sums(shared.out[warp_index()], op.dxbc, chunk, b_column(op, group), db);
}

}  // namespace lockstep
