// y in tiles. A persistent block takes one item after another: some heads of a group in a chunk.
// One warpgroup loads the factors of a head while two compute with wgmma. A warp
// keeps the C B^T of its rows in registers for the heads of an item.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_strips.cuh"

namespace lockstep {

inline constexpr int kOutputThreads = 3 * kWarpgroup;
inline constexpr int kOutputStages = 3;

struct OutputsShared {
  struct Stage {
    alignas(1024) unsigned char state[ChannelPanel::kBytes];  // Sb[n][p]
    alignas(1024) unsigned char xd[ChannelPanel::kBytes];     // xd_j[p]
    alignas(1024) unsigned char x[ChannelPanel::kBytes];  // y takes its place before it is stored.
    float dt[kTileRows];
    float cs[kTileRows];
  } stage[kOutputStages];
  alignas(1024) unsigned char b[StatePanels::kBytes];  // B_j[n] of the group.
  alignas(1024) unsigned char c[StatePanels::kBytes];  // C_i[n], in the order of the warps.
  ChunkOrder order;
  Barrier group_free;  // A computing warp is done with b and c.
  Barrier full[kOutputStages], free[kOutputStages];

  __device__ void init() {
    group_free.init(kComputingWarps);
    for (int s = 0; s < kOutputStages; ++s) {
      full[s].init(kWarpgroup);
      free[s].init(kComputingWarps);
    }
    fence_barriers();
  }
};
static_assert(sizeof(OutputsShared) <= 227 * 1024);

inline constexpr int kBlockHeads = 4;

// The heads [first, last) of an item.
struct BlockHeads {
  int group;
  int first;
  int last;
};
// The number of items for a group's heads.
template <class Op>
__host__ __device__ __forceinline__ int head_parts(const Op& op) {
  return (op.heads / op.groups + kBlockHeads - 1) / kBlockHeads;
}
// Calls work(chunk, heads) for a block's share of the items.
template <class Work>
__device__ __forceinline__ void each_item(const ChunkOrder& order, const ScanForward<bf16>& op,
                                          const Work& work) {
  const int per_group = op.heads / op.groups;
  const int parts = head_parts(op);
  each_part(order, op, static_cast<unsigned>(op.groups * parts), [&](const Chunk& chunk, int part) {
    const int group = part / parts;
    const int first = part % parts * kBlockHeads;
    work(chunk,
         BlockHeads{group, group * per_group + first,
                    group * per_group + static_cast<int>(smaller(per_group, first + kBlockHeads))});
  });
}

// The loading warpgroup. B and C of an item arrive with its first head, whose barrier counts their
// copies too. They may replace those of the item before while its heads are computed, which only
// need C B^T, in registers.
struct OutputFeeder {
  OutputsShared& shared;
  const ScanForward<bf16>& op;
  PipelineState<kOutputStages> ring;
  std::uint32_t group_phase = 0;

  __device__ __forceinline__ void feed(const Chunk& chunk, const BlockHeads& heads) {
    const int own = static_cast<int>(threadIdx.x);
    RowsAhead ahead;
    for (int head = heads.first; head < heads.last; ++head, ring.next()) {
      OutputsShared::Stage& stage = shared.stage[ring.stage];
      if (head == heads.first) {
        shared.group_free.wait(group_phase ^ 1);
        group_phase ^= 1;
        StatePanels::fill(shared_address(shared.b), op.xbc, chunk.start, chunk.rows,
                          b_column(op, heads.group), kTileState);
        start_own_rows(shared_address(shared.c), op.xbc, chunk, c_column(op, heads.group));
      }
      shared.free[ring.stage].wait(ring.phase ^ 1);
      ahead.load(op, op.xbc, chunk, head);
      start_panel(shared_address(stage.state), stored_state(op, chunk.index, head), kTileHead,
                  kTileState);
      start_panel(shared_address(stage.x), row_of(op.xbc, chunk, head_column(head)), op.xbc.pitch,
                  chunk.rows);
      close_copies();
      if (head + 1 < heads.last) expect(chunk, head + 1);
      stage.dt[own] = ahead.dt;
      stage.cs[own] = ahead.cs;
      wait_at(1, kWarpgroup);
      ahead.store(shared_address(stage.xd), stage.dt);
      wait_for_copies<0>();
      fence_for_tensor_core();
      shared.full[ring.stage].arrive();
    }
  }
  // Brings the rows of a head into the L2 cache.
  __device__ __forceinline__ void expect(const Chunk& chunk, int head) {
    const int row = static_cast<int>(threadIdx.x);
    fetch_into_l2(stored_state(op, chunk.index, head) + row * kTileHead);
    if (row >= chunk.rows) return;
    fetch_into_l2(row_of(op.xbc, chunk, head_column(head)) + row * op.xbc.pitch);
  }
};

// st(mul(g, Ld)) of the warp's rows i and sixteen others j as a left factor, +0 for j > i.
template <int kFirst>
__device__ __forceinline__ void mixing_factor(std::uint32_t (&a)[4], const float (&low)[4],
                                              const float (&high)[4], int s,
                                              const float (&cs)[kTileRows],
                                              const float (&own_cs)[2], bool little) {
  float m[2][4];
  decay_between<true, kFirst, 1>(m, s, cs, own_cs, little);
#pragma unroll
  for (int h = kFirst; h < 2; ++h) {
#pragma unroll
    for (int q = 0; q < 4; ++q) m[h][q] = mul((q < 2 ? low : high)[2 * h + q % 2], m[h][q]);
  }
  clear_other_side<true, kFirst, 1>(m, s);
  take_halves<kFirst, 1>(a, m);
}

// The warp's rows over the state as left factors. `rows` are in the order of the computing warps.
__device__ __forceinline__ void own_over_state(std::uint32_t (&steps)[kStateSteps][4],
                                               const unsigned char (&rows)[StatePanels::kBytes]) {
  const int row = kStep * (warp_index() - kWarpgroup / kWarp) + lane_index() % kStep;
#pragma unroll
  for (int k = 0; k < kStateSteps; ++k) {
    const std::uint32_t place = static_cast<std::uint32_t>(k / 4) * StatePanels::kPanel +
                                panel_place(row, k % 4 * 2 + lane_index() / kStep);
    take_blocks(steps[k][0], steps[k][1], steps[k][2], steps[k][3],
                reinterpret_cast<const bf16*>(&rows[place]));
  }
}
// The computing warpgroups.
struct OutputComputer {
  OutputsShared& shared;
  const ScanForward<bf16>& op;
  PipelineState<kOutputStages> ring;

  __device__ __forceinline__ void compute(const Chunk& chunk, const BlockHeads& heads) {
    const int early = early_steps(chunk.rows);
    const int late = late_steps(chunk.rows);
    std::uint32_t c[kStateSteps][4];
    float g[kTileRows / 8][4];
    shared.full[ring.stage].wait(ring.phase);
    own_over_state(c, shared.c);
    {
      const std::uint64_t b = factor_along_k(shared_address(shared.b));
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < kStateSteps; ++k)
        wgmma<0>(g, c[k], factor_at(b, k / 4 * StatePanels::kPanel + k % 4 * 32), k != 0);
      warpgroup_commit();
      warpgroup_wait<0>();
      warpgroup_fence_operand(g);
    }
    // C has been read as well: the product just awaited took it from registers.
    release(shared.group_free);
    for (int head = heads.first; head < heads.last; ++head, ring.next()) {
      OutputsShared::Stage& stage = shared.stage[ring.stage];
      shared.full[ring.stage].wait(ring.phase);
      float y[8][4];
      {
        const std::uint64_t b = factor_across_k(shared_address(stage.state), ChannelPanel::kPanel);
        warpgroup_arrive();
#pragma unroll
        for (int k = 0; k < kStateSteps; ++k)
          wgmma<1>(y, c[k], factor_at(b, k * kStep * kPanelRow), k != 0);
        warpgroup_commit();
      }
      const float own_cs[2] = {stage.cs[own_row(0)], stage.cs[own_row(1)]};
      const bool little = decays_little(stage.cs);
      std::uint32_t m[kRowSteps][4];
#pragma unroll
      for (int s = 0; s < kRowSteps; ++s) {
        m[s][0] = m[s][1] = m[s][2] = m[s][3] = 0;
        if (s < kRowSteps / 2 && s < early) {
          mixing_factor<0>(m[s], g[2 * s], g[2 * s + 1], s, stage.cs, own_cs, little);
        } else if (s < late) {
          mixing_factor<1>(m[s], g[2 * s], g[2 * s + 1], s, stage.cs, own_cs, little);
        }
      }
      warpgroup_wait<0>();
      warpgroup_fence_operand(y);
      scale_own(y, {expn(own_cs[0]), expn(own_cs[1])});
      start_over_rows(y, m, shared_address(stage.xd));
      OwnSteps x;
      own_steps(x, stage.x);
      const float d = at(op.d, 0, head);
      warpgroup_wait<0>();
      warpgroup_fence_operand(y);
      end_chains(y);
      store_own(stage.x, op.y.data + chunk.start * op.y.pitch + head_column(head), op.y.pitch,
                chunk.rows, [&](int c, int e) { return fma(d, element_of(x, c, e), y[c][e]); });
      release(shared.free[ring.stage]);
    }
  }
};

// The grid has a block for each multiprocessor.
static __global__ void __launch_bounds__(kOutputThreads, 1) tile_outputs(ScanForward<bf16> op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char output_memory[];
  OutputsShared& shared = *reinterpret_cast<OutputsShared*>(output_memory);
  if (threadIdx.x == 0) shared.init();
  shared.order.find(op);
  if (static_cast<int>(threadIdx.x) < kWarpgroup) {
    give_registers<104>();
    OutputFeeder feeder{shared, op};
    each_item(shared.order, op,
              [&](const Chunk& chunk, const BlockHeads& heads) { feeder.feed(chunk, heads); });
  } else {
    take_registers<200>();
    OutputComputer computer{shared, op};
    each_item(shared.order, op,
              [&](const Chunk& chunk, const BlockHeads& heads) { computer.compute(chunk, heads); });
  }
}
inline void launch_outputs(CudaQueue queue, const ScanForward<bf16>& op) {
  const std::int64_t items = std::int64_t{chunks_in_grid(op)} * op.groups * head_parts(op);
  const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(items, multiprocessors())));
  launch_tiles<OutputsShared>(queue, grid, kOutputThreads, tile_outputs, op);
}

}  // namespace lockstep
