// dC in tiles, with the sums h of y~ and dy, for which y~ is computed again: what rows i get from
// rows j <= i. KK grows in shared memory; KKb is kept in scratch for dB.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_gradients.cuh"

namespace lockstep {

inline constexpr int kOutputGradientStages = 2;
struct OutputGradientsShared : GradientsShared<kOutputGradientStages> {
  HalfTiles kk;
};
static_assert(sizeof(OutputGradientsShared) <= 227 * 1024);

struct OutputGradientFeeder : GradientFeeder<kOutputGradientStages> {
  __device__ __forceinline__ void feed(const Chunk& chunk, int group) {
    const int heads = op.heads / op.groups;
    const int first = group * heads;
    start_others(chunk, b_column(op, group));
    start_own(chunk, c_column(op, group));
    give();
    for (int head = first; head < first + heads; ++head) {
      GradientStage& stage = start_head(chunk, head, stored_state(op, chunk.index, head));
      const int own = static_cast<int>(threadIdx.x);
      const bool inside = own < chunk.rows;
      start_copy_4(&stage.decay[0][own], &dt_place(op, chunk, head, inside ? own : 0), inside);
      start_copy_4(&stage.decay[1][own], &cs_place(op, chunk, head, inside ? own : chunk.rows - 1),
                   true);
      close_copies();
      if (head + 1 < first + heads) expect(chunk, head + 1);
      wait_for_copies<0>();
      wait_at(1, kWarpgroup);
      scale_by_dt(stage);
      give();
    }
    start_others(chunk, b_column(op, group));
    give();
  }
  __device__ __forceinline__ void give() {
    close_copies();
    wait_for_copies<0>();
    fence_for_tensor_core();
    shared.full[ring.stage].arrive();
    ring.next();
  }
  // Scales the rows of x that this thread copied.
  static __device__ __forceinline__ void scale_by_dt(GradientStage& stage) {
    unsigned char* const own = stage.x + panel_place(RowsAhead::row(), RowsAhead::piece());
#pragma unroll 4
    for (int i = 0; i < kTileRows; i += RowsAhead::kStride) {
      Vec8& eight = *reinterpret_cast<Vec8*>(own + i * static_cast<int>(kPanelRow));
      const float dt = stage.decay[0][RowsAhead::row() + i];
      Vec8 scaled;
#pragma unroll
      for (int k = 0; k < 4; ++k) scaled.pairs[k] = scaled_pair(eight.pairs[k], dt);
      eight = scaled;
    }
  }
  // Brings the rows of a head into the L2 cache.
  __device__ __forceinline__ void expect(const Chunk& chunk, int head) {
    const int row = static_cast<int>(threadIdx.x);
    fetch_into_l2(stored_state(op, chunk.index, head) + row * kTileHead);
    if (row >= chunk.rows) return;
    fetch_into_l2(row_of(op.xbc, chunk, head_column(head)) + row * op.xbc.pitch);
    fetch_into_l2(row_of(op.dy, chunk, head_column(head)) + row * op.dy.pitch);
  }
};

struct OutputGradientComputer {
  OutputGradientsShared& shared;
  const ScanBackward<bf16>& op;
  PipelineState<kOutputGradientStages> ring;

  __device__ __forceinline__ void compute(const Chunk& chunk, int group) {
    const int heads = op.heads / op.groups;
    const int first = group * heads;
    float dc[16][4];
    begin_group(dc);
    for (int head = first; head < first + heads; ++head, ring.next()) {
      add_head(dc, chunk, head, head != first);
      if (head + 1 == first + heads) release(shared.own_free);
      release(shared.free[ring.stage]);
    }
    GradientStage& stage = shared.stage[ring.stage];
    std::uint32_t kkb[kRowSteps][4];
    end_pairs(kkb, chunk, first);
    shared.full[ring.stage].wait(ring.phase);
    extend_over_rows(dc, kkb, stage.over_state());
    store_over_state(stage.state, op.dxbc, chunk, c_column(op, group), dc);
    release(shared.free[ring.stage]);
    ring.next();
  }
  // C B^T of the warp's rows, and KK = +0.
  __device__ __forceinline__ void begin_group(float (&g)[16][4]) {
    shared.full[ring.stage].wait(ring.phase);
    multiply_group(g, own_rows(shared.own), shared.stage[ring.stage].over_state());
    release(shared.free[ring.stage]);
    ring.next();
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (s > own_block(h) / 2) continue;
        shared.g.up_to(h, s) = half_of(g[2 * s], g[2 * s + 1], h);
        shared.kk.up_to(h, s) = {};
      }
    }
  }
  __device__ __forceinline__ void add_head(float (&dc)[16][4], const Chunk& chunk, int head,
                                           bool continues) {
    GradientStage& stage = shared.stage[ring.stage];
    shared.full[ring.stage].wait(ring.phase);
    float y[8][4];
    float pairs[16][4];
    OwnSteps dy;
    own_steps(dy, stage.dy);
    warpgroup_arrive();
    start_over_head(pairs, dy, shared_address(stage.x), false);
    const float own_cs[2] = {stage.decay[1][own_row(0)], stage.decay[1][own_row(1)]};
    const float own_decay[2] = {expn(own_cs[0]), expn(own_cs[1])};
    const int own = static_cast<int>(threadIdx.x) - kWarpgroup;
    kept_decays(op, chunk.index, head)[own] = stage.decay[own / kTileRows][own % kTileRows];
    warpgroup_wait<0>();
    warpgroup_fence_operand(pairs);
    scale_steps(dy, own_decay);
    warpgroup_fence_operand(dc);
    warpgroup_arrive();
    start_over_head(dc, dy, shared_address(stage.state), continues);
    const bool little = decays_little(stage.decay[1]);
    std::uint32_t m[kRowSteps][4];
    const int early = early_steps(chunk.rows);
    const int late = late_steps(chunk.rows);
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
      // y begins once half of the pairs no longer take registers: with both, too few are left for
      // the chains of expn to run side by side.
      if (s == kRowSteps / 2) {
        warpgroup_arrive();
        start_over_state(y, own_rows(shared.own), shared_address(stage.state));
      }
      m[s][0] = m[s][1] = m[s][2] = m[s][3] = 0;
      if (s < kRowSteps / 2 && s < early) {
        add_pairs<0>(m[s], pairs[2 * s], pairs[2 * s + 1], s, stage.decay[1], own_cs, little);
      } else if (s < late) {
        add_pairs<1>(m[s], pairs[2 * s], pairs[2 * s + 1], s, stage.decay[1], own_cs, little);
      }
    }
    warpgroup_wait<0>();
    warpgroup_fence_operand(dc);
    warpgroup_fence_operand(y);
    scale_own(y, own_decay);
    start_over_rows(y, m, shared_address(stage.x));
    OwnSteps own_dy;
    own_steps(own_dy, stage.dy);
    warpgroup_wait<0>();
    warpgroup_fence_operand(y);
    sum_channels(op, chunk, head, kSumH, [&](int x, int e) {
      return fma(element_of(own_dy, x, e), add(y[x][e], 0.0f), 0.0f);
    });
  }
  // Adds mul(DOT over P of dy_i, xd_j, Ld_ij) to KK, and gives st(mul(Gm_ij, Ld_ij)).
  template <int kFirst>
  __device__ __forceinline__ void add_pairs(std::uint32_t (&m)[4], const float (&low)[4],
                                            const float (&high)[4], int s,
                                            const float (&cs)[kTileRows], const float (&own_cs)[2],
                                            bool little) {
    float ld[2][4];
    decay_between<true, kFirst, 1>(ld, s, cs, own_cs, little);
    float pair[2][4];
    float mixed[2][4];
#pragma unroll
    for (int h = kFirst; h < 2; ++h) {
      const float4 g = shared.g.up_to(h, s);
      const float of_group[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        pair[h][q] = mul((q < 2 ? low : high)[2 * h + q % 2], ld[h][q]);
        mixed[h][q] = mul(of_group[q], ld[h][q]);
      }
    }
    clear_other_side<true, kFirst, 1>(pair, s);
    clear_other_side<true, kFirst, 1>(mixed, s);
    take_halves<kFirst, 1>(m, mixed);
#pragma unroll
    for (int h = kFirst; h < 2; ++h) {
      float4& kk = shared.kk.up_to(h, s);
      const float4 sum = kk;
      kk = make_float4(add(sum.x, pair[h][0]), add(sum.y, pair[h][1]), add(sum.z, pair[h][2]),
                       add(sum.w, pair[h][3]));
    }
  }
  // KKb as left factors, which are also kept.
  __device__ __forceinline__ void end_pairs(std::uint32_t (&kkb)[kRowSteps][4], const Chunk& chunk,
                                            int first_head) {
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float4 kk = {};
        if (s <= own_block(h) / 2) kk = shared.kk.up_to(h, s);
        kkb[s][h] = stored_pair(kk.x, kk.y);
        kkb[s][2 + h] = stored_pair(kk.z, kk.w);
#pragma unroll
        for (int x = 0; x < 2; ++x) {
          if (2 * s + x <= own_block(h) && 8 * own_block(h) < chunk.rows)
            stored_pairs(op, chunk.index, first_head, own_block(h), 2 * s + x) = kkb[s][2 * x + h];
        }
      }
    }
  }
};

static __global__ void __launch_bounds__(kGradientThreads, 1)
    tile_output_gradients(ScanBackward<bf16> op) {
  pdl_begin();
  give_gradients<OutputGradientsShared, OutputGradientFeeder, OutputGradientComputer>(op);
}

}  // namespace lockstep
