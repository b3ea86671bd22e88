// dx and dB in tiles, with the sums g and q and those of dD: what rows j get from rows i >= j.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_gradients.cuh"

namespace lockstep {

inline constexpr int kInputGradientStages = 3;
using InputGradientsShared = GradientsShared<kInputGradientStages>;
static_assert(sizeof(InputGradientsShared) <= 227 * 1024);

struct InputGradientFeeder : GradientFeeder<kInputGradientStages> {
  __device__ __forceinline__ void feed(const Chunk& chunk, int group) {
    const int heads = op.heads / op.groups;
    const int first = group * heads;
    start_others(chunk, c_column(op, group));
    start_own(chunk, b_column(op, group));
    give();
    for (int head = first; head < first + heads; ++head) {
      GradientStage& stage = start_head(chunk, head, stored_dstate(op, chunk.index, head));
      const int own = static_cast<int>(threadIdx.x);
      if (own < 2 * kTileRows / 4)
        copy_16(shared_address(stage.decay) + 16 * own,
                kept_decays(op, chunk.index, head) + 4 * own, true);
      give();
    }
    start_others(chunk, c_column(op, group));
    give();
  }
  // The stage is full once the copies have ended.
  __device__ __forceinline__ void give() {
    arrive_after_copies(shared.full[ring.stage]);
    ring.next();
  }
};

struct InputGradientComputer {
  InputGradientsShared& shared;
  const ScanBackward<bf16>& op;
  PipelineState<kInputGradientStages> ring;

  __device__ __forceinline__ GradientStage& await() {
    shared.full[ring.stage].wait(ring.phase);
    fence_for_tensor_core();
    return shared.stage[ring.stage];
  }
  __device__ __forceinline__ void compute(const Chunk& chunk, int group) {
    const int heads = op.heads / op.groups;
    const int first = group * heads;
    float db[16][4];
    begin_group(db);
    for (int head = first; head < first + heads; ++head, ring.next()) {
      add_head(db, chunk, head, head != first);
      if (head + 1 == first + heads) release(shared.own_free);
      release(shared.free[ring.stage]);
    }
    std::uint32_t kkb[kRowSteps][4];
    load_pairs(kkb, chunk, first);
    GradientStage& stage = await();
    extend_over_rows(db, kkb, stage.over_state());
    store_over_state(stage.state, op.dxbc, chunk, b_column(op, group), db);
    release(shared.free[ring.stage]);
    ring.next();
  }
  // C B^T of the warp's rows j.
  __device__ __forceinline__ void begin_group(float (&g)[16][4]) {
    multiply_group(g, own_rows(shared.own), await().over_state());
    release(shared.free[ring.stage]);
    ring.next();
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (s >= own_block(h) / 2) shared.g.from(h, s) = half_of(g[2 * s], g[2 * s + 1], h);
      }
    }
  }
  __device__ __forceinline__ void add_head(float (&db)[16][4], const Chunk& chunk, int head,
                                           bool continues) {
    GradientStage& stage = await();
    float xa[8][4];  // Holds t first.
    warpgroup_arrive();
    start_over_state(xa, own_rows(shared.own), shared_address(stage.state));
    const float own_cs[2] = {stage.decay[1][own_row(0)], stage.decay[1][own_row(1)]};
    const float dt[2] = {stage.decay[0][own_row(0)], stage.decay[0][own_row(1)]};
    const float end = stage.decay[1][kTileRows - 1];
    const float to_end[2] = {expn(sub(end, own_cs[0])), expn(sub(end, own_cs[1]))};
    OwnSteps xw;
    own_steps(xw, stage.x);
    scale_steps(xw, {mul(to_end[0], dt[0]), mul(to_end[1], dt[1])});
    warpgroup_fence_operand(db);
    warpgroup_arrive();
    start_over_head(db, xw, shared_address(stage.state), continues);
    const bool little = decays_little(stage.decay[1]);
    std::uint32_t m[kRowSteps][4];
    const bool has_rows = 8 * own_block() < chunk.rows;
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
      m[s][0] = m[s][1] = m[s][2] = m[s][3] = 0;
      if (kStep * s >= chunk.rows || !has_rows) continue;
      if (s >= kRowSteps / 2 && s >= first_of_late()) {
        mix<1>(m[s], s, stage.decay[1], own_cs, little);
      } else if (s >= first_of_early()) {
        mix<0>(m[s], s, stage.decay[1], own_cs, little);
      }
    }
    OwnSteps x;
    own_steps(x, stage.x);
    warpgroup_wait<0>();
    warpgroup_fence_operand(xa);
    warpgroup_fence_operand(db);
    sum_channels(op, chunk, head, kSumQ,
                 [&](int c, int e) { return fma(element_of(x, c, e), xa[c][e], 0.0f); });
    scale_own(xa, to_end);
    start_over_rows(xa, m, shared_address(stage.dy));
    OwnSteps dy;
    own_steps(dy, stage.dy);
    sum_channels(op, chunk, head, kSumD, [&](int c, int e) {
      return fma(element_of(dy, c, e), element_of(x, c, e), 0.0f);
    });
    const float d = at(op.d, 0, head);
    warpgroup_wait<0>();
    warpgroup_fence_operand(xa);
    end_chains(xa);
    sum_channels(op, chunk, head, kSumG,
                 [&](int c, int e) { return fma(element_of(x, c, e), xa[c][e], 0.0f); });
    store_own(stage.x, op.dxbc.data + chunk.start * op.dxbc.pitch + head_column(head),
              op.dxbc.pitch, chunk.rows,
              [&](int c, int e) { return fma(d, element_of(dy, c, e), mul(xa[c][e], dt[e / 2])); });
  }
  // st(mul(Gm_ij, Ld_ij)) of sixteen rows i and the warp's j.
  template <int kLast>
  __device__ __forceinline__ void mix(std::uint32_t (&m)[4], int s, const float (&cs)[kTileRows],
                                      const float (&own_cs)[2], bool little) {
    float mixed[2][4];
    decay_between<false, 0, kLast>(mixed, s, cs, own_cs, little);
#pragma unroll
    for (int h = 0; h <= kLast; ++h) {
      const float4 g = shared.g.from(h, s);
      const float of_group[4] = {g.x, g.y, g.z, g.w};
#pragma unroll
      for (int q = 0; q < 4; ++q) mixed[h][q] = mul(of_group[q], mixed[h][q]);
    }
    clear_other_side<false, 0, kLast>(mixed, s);
    take_halves<0, kLast>(m, mixed);
  }
  // KKb with the warp's rows j as left factors.
  __device__ __forceinline__ void load_pairs(std::uint32_t (&kkb)[kRowSteps][4], const Chunk& chunk,
                                             int first_head) {
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int earlier = own_block(r % 2);
        const int later = 2 * s + r / 2;
        const bool is_pair = earlier <= later && 8 * later < chunk.rows;
        kkb[s][r] = is_pair ? stored_pairs(op, chunk.index, first_head, later, earlier) : 0;
      }
    }
#pragma unroll
    for (int s = 0; s < kRowSteps; ++s) {
#pragma unroll
      for (int r = 0; r < 4; ++r) kkb[s][r] = transposed(kkb[s][r]);
    }
  }
  // The transposed 8 x 8 block of the warp.
  static __device__ __forceinline__ std::uint32_t transposed(std::uint32_t block) {
    std::uint32_t across;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(across) : "r"(block));
    return across;
  }
};

static __global__ void __launch_bounds__(kGradientThreads, 1)
    tile_input_gradients(ScanBackward<bf16> op) {
  pdl_begin();
  give_gradients<InputGradientsShared, InputGradientFeeder, InputGradientComputer>(op);
}

}  // namespace lockstep
