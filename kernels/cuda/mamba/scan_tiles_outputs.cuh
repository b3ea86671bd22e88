// y in tiles. A persistent block takes one item after another: some heads of a group in a chunk.
// One warpgroup loads the factors of a head while two compute with wgmma. A warp owns 16 rows and
// keeps their C B^T in registers for the heads of an item.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_row_outputs.cuh"
#include "kernels/cuda/mamba/scan_tiles_states.cuh"

namespace lockstep {

inline constexpr int kOutputThreads = 3 * kWarpgroup;
inline constexpr int kOutputStages = 3;
inline constexpr int kComputingWarps = 2 * kWarpgroup / kWarp;

struct OutputsShared {
  struct Stage {
    alignas(1024) unsigned char state[ChannelPanel::kBytes];  // Sb[n][p]
    alignas(1024) unsigned char xd[ChannelPanel::kBytes];     // xd_j[p]
    alignas(1024) unsigned char x[ChannelPanel::kBytes];  // y takes its place before it is stored.
    float dt[kTileRows];
    float cs[kTileRows];
  } stage[kOutputStages];
  alignas(1024) unsigned char b[StatePanels::kBytes];  // B_j[n] of the group.
  Barrier b_free;
  Barrier full[kOutputStages], free[kOutputStages];

  __device__ void init() {
    b_free.init(kComputingWarps);
    for (int s = 0; s < kOutputStages; ++s) {
      full[s].init(kWarpgroup);
      free[s].init(kComputingWarps);
    }
    fence_barriers();
  }
};
static_assert(sizeof(OutputsShared) <= 227 * 1024);

// The sixteen rows of the chunk that a computing warp owns. Later rows have more work; the two
// warps of a scheduler have about the same, and so have both warpgroups.
__device__ __forceinline__ int own_strip() {
  constexpr unsigned kFirst = 0x7430;   // 0, 3, 4, 7
  constexpr unsigned kSecond = 0x1256;  // 6, 5, 2, 1
  const bool is_first = static_cast<int>(threadIdx.x) < 2 * kWarpgroup;
  return static_cast<int>((is_first ? kFirst : kSecond) >> (4 * own_warp()) & 15);
}

// Calls work(chunk, heads) for a block's share of the items.
template <class Work>
__device__ __forceinline__ void each_item(const ScanForward<bf16>& op, const Work& work) {
  const int per_group = op.heads / op.groups;
  const auto parts = static_cast<unsigned>((per_group + kBlockHeads - 1) / kBlockHeads);
  const unsigned of_chunk = static_cast<unsigned>(op.groups) * parts;
  for (unsigned item = blockIdx.x;; item += gridDim.x) {
    const unsigned index = item / of_chunk;
    if (index >= op.chunk_document.cols) return;
    const Chunk chunk = chunk_at(op, index);
    if (chunk.rows == 0) return;  // So have all behind it.
    const int group = static_cast<int>(item % of_chunk / parts);
    const int first = static_cast<int>(item % parts) * kBlockHeads;
    work(chunk,
         BlockHeads{group, group * per_group + first,
                    group * per_group + static_cast<int>(smaller(per_group, first + kBlockHeads))});
  }
}

// The loading warpgroup. B of an item arrives with its first head.
struct OutputFeeder {
  OutputsShared& shared;
  const ScanForward<bf16>& op;
  PipelineState<kOutputStages> ring;
  std::uint32_t b_phase = 0;

  __device__ __forceinline__ void feed(const Chunk& chunk, const BlockHeads& heads) {
    const int own = static_cast<int>(threadIdx.x);
    RowsAhead ahead;
    for (int head = heads.first; head < heads.last; ++head, ring.next()) {
      OutputsShared::Stage& stage = shared.stage[ring.stage];
      if (head == heads.first) {
        shared.b_free.wait(b_phase ^ 1);
        b_phase ^= 1;
        StatePanels::fill(shared_address(shared.b), op.xbc, chunk.start, chunk.rows,
                          b_column(op, heads.group), kTileState);
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
  // Starts the copies of a panel's rows, of which the first `rows` exist; the others become +0.
  static __device__ __forceinline__ void start_panel(std::uint32_t to, const bf16* from,
                                                     std::int64_t pitch, int rows) {
    to += panel_place(RowsAhead::row(), RowsAhead::piece());
    from += RowsAhead::row() * pitch + 8 * RowsAhead::piece();
#pragma unroll
    for (int i = 0; i < kTileRows; i += RowsAhead::kStride)
      copy_16(to + i * kPanelRow, from + i * pitch, RowsAhead::row() + i < rows);
  }
  // Brings the rows of a head into the L2 cache.
  __device__ __forceinline__ void expect(const Chunk& chunk, int head) {
    const int row = static_cast<int>(threadIdx.x);
    fetch_into_l2(stored_state(op, chunk.index, head) + row * kTileHead);
    if (row >= chunk.rows) return;
    fetch_into_l2(row_of(op.xbc, chunk, head_column(head)) + row * op.xbc.pitch);
  }
  static __device__ __forceinline__ void fetch_into_l2(const bf16* line) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
  }
};

// st(mul(g, Ld)) of the warp's rows i and sixteen others j as a left factor, +0 for j > i.
__device__ __forceinline__ void mixing_factor(std::uint32_t (&a)[4], const float (&low)[4],
                                              const float (&high)[4], int s,
                                              const float (&cs)[kTileRows],
                                              const float (&own_cs)[2]) {
  float m[2][4];
#pragma unroll
  for (int x = 0; x < 2; ++x) {
    const float2 other =
        *reinterpret_cast<const float2*>(&cs[kStep * s + 8 * x + 2 * lane_place()]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float other_cs = e % 2 == 0 ? other.x : other.y;
      m[x][e] = sub(own_cs[e / 2], other_cs);
    }
  }
  expn_of_eight(m);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    m[0][e] = mul(low[e], m[0][e]);
    m[1][e] = mul(high[e], m[1][e]);
  }
  if (s == own_strip()) {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int other = 8 * x + 2 * lane_place() + e % 2;
        const int own = lane_group() + 8 * (e / 2);
        m[x][e] = other <= own ? m[x][e] : 0.0f;
      }
    }
  }
  take_a(a, m[0], m[1]);
}

// Loads the warp's rows from global memory as left factors over the state. Rows past the chunk's
// end are +0.
__device__ __forceinline__ void strip_over_state(std::uint32_t (&steps)[kStateSteps][4],
                                                 const In<bf16>& from, const Chunk& chunk,
                                                 std::int64_t column) {
  const bf16* const own = row_of(from, chunk, column) + 2 * lane_place();
#pragma unroll
  for (int k = 0; k < kStateSteps; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = 16 * own_strip() + lane_group() + 8 * (r % 2);
      const bf16* const place = own + i * from.pitch + kStep * k + 8 * (r / 2);
      steps[k][r] = i < chunk.rows ? *reinterpret_cast<const std::uint32_t*>(place) : 0;
    }
  }
}
// The pair of the lane in a panel's columns 8x .. 8x + 7 of its row g (h = 0) or g + 8 (h = 1).
__device__ __forceinline__ std::uint32_t& pair_in(unsigned char (&panel)[ChannelPanel::kBytes],
                                                  int x, int h) {
  const int row = 16 * own_strip() + lane_group() + 8 * h;
  return *reinterpret_cast<std::uint32_t*>(&panel[panel_place(row, x) + 4 * lane_place()]);
}
__device__ __forceinline__ float element_in(unsigned char (&panel)[ChannelPanel::kBytes], int x,
                                            int e) {
  const std::uint32_t pair = pair_in(panel, x, e / 2);
  return e % 2 == 0 ? low_of(pair) : high_of(pair);
}
// Stores value(x, e) as the warp's rows of a head's channels, through its rows of the panel.
template <class F>
__device__ __forceinline__ void store_strip(unsigned char (&panel)[ChannelPanel::kBytes], bf16* to,
                                            std::int64_t pitch, int rows, F value) {
#pragma unroll
  for (int x = 0; x < 8; ++x) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t both = stored_pair(value(x, 2 * h), value(x, 2 * h + 1));
      pair_in(panel, x, h) = both;
    }
  }
  __syncwarp();
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int i = lane_index() / 8 + 4 * part;
    const int piece = lane_index() % 8;
    if (i < rows)
      *reinterpret_cast<Vec8*>(to + i * pitch + 8 * piece) =
          *reinterpret_cast<const Vec8*>(&panel[panel_place(16 * own_strip() + i, piece)]);
  }
}
__device__ __forceinline__ void scale_own(float (&sum)[8][4], float upper, float lower) {
#pragma unroll
  for (int x = 0; x < 8; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[x][e] = mul(sum[x][e], e / 2 == 0 ? upper : lower);
  }
}

// The computing warpgroups.
struct OutputComputer {
  OutputsShared& shared;
  const ScanForward<bf16>& op;
  PipelineState<kOutputStages> ring;

  __device__ __forceinline__ void release(Barrier& barrier) {
    __syncwarp();
    if (lane_index() == 0) barrier.arrive();
  }
  __device__ __forceinline__ void compute(const Chunk& chunk, const BlockHeads& heads) {
    const int strip = own_strip();
    std::uint32_t c[kStateSteps][4];
    strip_over_state(c, op.xbc, chunk, c_column(op, heads.group));
    float g[kTileRows / 8][4];
    shared.full[ring.stage].wait(ring.phase);
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
    release(shared.b_free);
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
      const int row = 16 * strip + lane_group();
      const float own_cs[2] = {stage.cs[row], stage.cs[row + 8]};
      std::uint32_t m[kRowSteps][4];
#pragma unroll
      for (int s = 0; s < kRowSteps; ++s) {
        if (s <= strip) {
          mixing_factor(m[s], g[2 * s], g[2 * s + 1], s, stage.cs, own_cs);
        } else {
#pragma unroll
          for (int r = 0; r < 4; ++r) m[s][r] = 0;
        }
      }
      warpgroup_wait<0>();
      warpgroup_fence_operand(y);
      const int first = 16 * own_strip();
      const int own = first + lane_group();
      scale_own(y, expn(stage.cs[own]), expn(stage.cs[own + 8]));
      {
        const std::uint64_t b = factor_across_k(shared_address(stage.xd), ChannelPanel::kPanel);
        warpgroup_fence_operand(y);
        warpgroup_arrive();
#pragma unroll
        for (int s = 0; s < kRowSteps; ++s)
          wgmma<1>(y, m[s], factor_at(b, s * kStep * kPanelRow), 1);
        warpgroup_commit();
        warpgroup_wait<0>();
        warpgroup_fence_operand(y);
      }
#pragma unroll
      for (int x = 0; x < 8; ++x) {
#pragma unroll
        for (int e = 0; e < 4; ++e) y[x][e] = add(y[x][e], 0.0f);
      }
      const float d = at(op.d, 0, head);
      bf16* const to = op.y.data + (chunk.start + first) * op.y.pitch + head_column(head);
      store_strip(stage.x, to, op.y.pitch, chunk.rows - first,
                  [&](int x, int e) { return fma(d, element_in(stage.x, x, e), y[x][e]); });
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
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < kWarpgroup) {
    give_registers<104>();
    OutputFeeder feeder{shared, op};
    each_item(op, [&](const Chunk& chunk, const BlockHeads& heads) { feeder.feed(chunk, heads); });
  } else {
    take_registers<200>();
    OutputComputer computer{shared, op};
    each_item(op,
              [&](const Chunk& chunk, const BlockHeads& heads) { computer.compute(chunk, heads); });
  }
}
inline void launch_outputs(CudaQueue queue, const ScanForward<bf16>& op) {
  const std::int64_t items = std::int64_t{chunks_in_grid(op)} * op.groups * head_parts(op);
  const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(items, multiprocessors())));
  launch_tiles<OutputsShared>(queue, grid, kOutputThreads, tile_outputs, op);
}

}  // namespace lockstep
