// Parts of the two kernels of the gradients in tiles. A persistent block takes one item after
// another: a group in a chunk. One warpgroup loads the factors of a head while two compute with
// wgmma. The sums over heads stay in registers, and what the heads of a group share (C B^T) in
// shared memory.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_strips.cuh"

namespace lockstep {

inline constexpr int kGradientThreads = 3 * kWarpgroup;
// The shares of 168 registers for each of three warpgroups.
inline constexpr int kFeederRegisters = 40;
inline constexpr int kComputerRegisters = 232;

// The factors of a head; or B or C of the group in the first two panels, the last one being free.
struct GradientStage {
  alignas(1024) unsigned char x[ChannelPanel::kBytes];      // xd_j[p], or x_j[p].
  alignas(1024) unsigned char dy[ChannelPanel::kBytes];     // dy_i[p]
  alignas(1024) unsigned char state[ChannelPanel::kBytes];  // Sb[n][p], or dSb[n][p].
  float decay[2][kTileRows];                                // dt, then cs, as in kept_decays.

  __device__ __forceinline__ std::uint32_t over_state() { return shared_address(x); }
};
static_assert(StatePanels::kBytes == 2 * ChannelPanel::kBytes);
static_assert(sizeof(GradientStage) % 1024 == 0);

// fp32 for the pairs of each warp's rows with the others, one for each element of its lanes: nine
// tiles of eight rows and sixteen others.
struct HalfTiles {
  static constexpr int kOfWarp = 9;
  float4 of[kComputingWarps][kOfWarp][kWarp];

  // The tile of an own half and the rows of sixteen `s`, which come up to its rows, or from them
  // on.
  __device__ __forceinline__ float4& up_to(int half, int s) {
    return at(half == 0 ? s : own_block() / 2 + 1 + s);
  }
  __device__ __forceinline__ float4& from(int half, int s) {
    return at(half == 0 ? s + 1 : s - first_of_late());
  }

 private:
  __device__ __forceinline__ float4& at(int tile) {
    return of[warp_index() - kWarpgroup / kWarp][tile][lane_index()];
  }
};
// The lane's elements of a half in two fragments whose columns are 8 apart.
__device__ __forceinline__ float4 half_of(const float (&low)[4], const float (&high)[4], int half) {
  return make_float4(low[2 * half], low[2 * half + 1], high[2 * half], high[2 * half + 1]);
}

template <int kStages>
struct GradientsShared {
  GradientStage stage[kStages];
  alignas(1024) unsigned char own[StatePanels::kBytes];  // C_i[n], or B_j[n], by warps.
  HalfTiles g;                                           // C_i . B_j
  ChunkOrder order;
  Barrier own_free;
  Barrier full[kStages], free[kStages];

  __device__ void init() {
    own_free.init(kComputingWarps);
    for (int s = 0; s < kStages; ++s) {
      full[s].init(kWarpgroup);
      free[s].init(kComputingWarps);
    }
    fence_barriers();
  }
};

inline dim3 group_grid(const ScanBackward<bf16>& op) {
  const std::int64_t items = std::int64_t{chunks_in_grid(op)} * op.groups;
  return dim3(static_cast<unsigned>(std::min<std::int64_t>(items, multiprocessors())));
}

// The part of the loading warpgroups that both kernels share.
template <int kStages>
struct GradientFeeder {
  GradientsShared<kStages>& shared;
  const ScanBackward<bf16>& op;
  PipelineState<kStages> ring = {};
  std::uint32_t own_phase = 0;

  __device__ __forceinline__ GradientStage& claim() {
    shared.free[ring.stage].wait(ring.phase ^ 1);
    return shared.stage[ring.stage];
  }
  // Starts the copies of the rows over the state that the computing warps do not own. Those that
  // they own come with the first.
  __device__ __forceinline__ void start_others(const Chunk& chunk, std::int64_t column) {
    StatePanels::fill(claim().over_state(), op.xbc, chunk.start, chunk.rows, column, kTileState);
  }
  __device__ __forceinline__ void start_own(const Chunk& chunk, std::int64_t column) {
    shared.own_free.wait(own_phase ^ 1);
    own_phase ^= 1;
    start_own_rows(shared_address(shared.own), op.xbc, chunk, column);
  }
  // Starts the copies of a head's factors.
  __device__ __forceinline__ GradientStage& start_head(const Chunk& chunk, int head,
                                                       const bf16* state) {
    GradientStage& stage = claim();
    start_panel(shared_address(stage.x), row_of(op.xbc, chunk, head_column(head)), op.xbc.pitch,
                chunk.rows);
    start_panel(shared_address(stage.dy), row_of(op.dy, chunk, head_column(head)), op.dy.pitch,
                chunk.rows);
    start_panel(shared_address(stage.state), state, kTileHead, kTileState);
    return stage;
  }
};

// The address of the rows of `own` that the warpgroup owns.
__device__ __forceinline__ std::uint32_t own_rows(const unsigned char (&own)[StatePanels::kBytes]) {
  const bool is_first = static_cast<int>(threadIdx.x) < 2 * kWarpgroup;
  return shared_address(own) + (is_first ? 0 : 64 * kPanelRow);
}
// The offset of step k of a factor of two panels whose rows run along the state.
__host__ __device__ constexpr std::uint32_t along_state(int k) {
  return static_cast<std::uint32_t>(k / 4) * StatePanels::kPanel +
         static_cast<std::uint32_t>(k % 4) * 32;
}
// sum[own, p] = DOT over n of own[n], state[n, p].
__device__ __forceinline__ void start_over_state(float (&sum)[8][4], std::uint32_t own,
                                                 std::uint32_t state) {
  const std::uint64_t a = factor_along_k(own);
  const std::uint64_t b = factor_across_k(state, ChannelPanel::kPanel);
#pragma unroll
  for (int k = 0; k < kStateSteps; ++k)
    wgmma<1>(sum, factor_at(a, along_state(k)), factor_at(b, k * kStep * kPanelRow), k != 0);
  warpgroup_commit();
}
// sum[own, other] = DOT over p, continued if `keep`, of a[own, p], other[other, p].
__device__ __forceinline__ void start_over_head(float (&sum)[16][4],
                                                const std::uint32_t (&a)[kHeadSteps][4],
                                                std::uint32_t other, bool keep) {
  const std::uint64_t b = factor_along_k(other);
#pragma unroll
  for (int k = 0; k < kHeadSteps; ++k) wgmma<0>(sum, a[k], factor_at(b, k * 32), k != 0 || keep);
  warpgroup_commit();
}
// The same with C_i . B_j of the group: g[own, other].
__device__ __forceinline__ void multiply_group(float (&g)[16][4], std::uint32_t own,
                                               std::uint32_t others) {
  const std::uint64_t a = factor_along_k(own);
  const std::uint64_t b = factor_along_k(others);
  warpgroup_arrive();
#pragma unroll
  for (int k = 0; k < kStateSteps; ++k)
    wgmma<0>(g, factor_at(a, along_state(k)), factor_at(b, along_state(k)), k != 0);
  warpgroup_commit();
  warpgroup_wait<0>();
  warpgroup_fence_operand(g);
}
// Continues sum[own, n] over the chunk's rows with m[own, row], others[row, n].
__device__ __forceinline__ void extend_over_rows(float (&sum)[16][4],
                                                 const std::uint32_t (&m)[kRowSteps][4],
                                                 std::uint32_t others) {
  const std::uint64_t b = factor_across_k(others, StatePanels::kPanel);
  warpgroup_fence_operand(sum);
  warpgroup_arrive();
#pragma unroll
  for (int s = 0; s < kRowSteps; ++s) wgmma<1>(sum, m[s], factor_at(b, s * kStep * kPanelRow), 1);
  warpgroup_commit();
  warpgroup_wait<0>();
  warpgroup_fence_operand(sum);
}

// Stores R128 over the channels of the lane's row in row_sum, for the dt gradients.
template <class F>
__device__ __forceinline__ void sum_channels(const ScanBackward<bf16>& op, const Chunk& chunk,
                                             int head, RowSum which, F product) {
  const float sum = row_tree(product);
  const int row = own_row(lane_place());
  if (lane_place() < 2 && row < chunk.rows) row_sum(op, chunk.index, head, which, row) = sum;
}
// Stores the warp's rows of 128 sums over the state, in two halves through the panel.
__device__ __forceinline__ void store_over_state(unsigned char (&panel)[ChannelPanel::kBytes],
                                                 const Out<bf16>& to, const Chunk& chunk,
                                                 std::int64_t column, const float (&sum)[16][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    __syncwarp();  // The previous half has been read.
    store_own(panel, to.data + chunk.start * to.pitch + column + 64 * half, to.pitch, chunk.rows,
              [&](int x, int e) { return add(sum[8 * half + x][e], 0.0f); });
  }
}

// The lane's pair of KKb in block (rows i, rows j) of a group in a chunk.
__device__ __forceinline__ std::uint32_t& stored_pairs(const ScanBackward<bf16>& op,
                                                       std::int64_t chunk, int first_head,
                                                       int later, int earlier) {
  float* const pairs = head_part(op.states, chunk, first_head) + ScratchLayout::kPairs;
  return reinterpret_cast<std::uint32_t*>(
      pairs)[(later * (later + 1) / 2 + earlier) * kWarp + lane_index()];
}
static_assert(ScratchLayout::kPairs + kBlocks * (kBlocks + 1) / 2 * kWarp <=
              ScratchLayout::kDecays);

// The body of a kernel, behind pdl_begin(): one warpgroup feeds, two compute.
template <class Shared, class Feeder, class Computer>
__device__ __forceinline__ void give_gradients(const ScanBackward<bf16>& op) {
  extern __shared__ __align__(1024) unsigned char gradient_memory[];
  Shared& shared = *reinterpret_cast<Shared*>(gradient_memory);
  if (threadIdx.x == 0) shared.init();
  shared.order.find(op);
  const auto groups = static_cast<unsigned>(op.groups);
  if (static_cast<int>(threadIdx.x) < kWarpgroup) {
    give_registers<kFeederRegisters>();
    Feeder feeder{{shared, op}};
    each_part(shared.order, op, groups,
              [&](const Chunk& chunk, int group) { feeder.feed(chunk, group); });
  } else {
    take_registers<kComputerRegisters>();
    Computer computer{shared, op};
    each_part(shared.order, op, groups,
              [&](const Chunk& chunk, int group) { computer.compute(chunk, group); });
  }
}

}  // namespace lockstep
