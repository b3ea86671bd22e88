// The chunk states S and their gradients dS in tiles. A block walks the chunks of a document for
// one head: one warpgroup loads a chunk's rows and scales them while the other one multiplies those
// of the chunk before and stores its state.
#pragma once

#include "kernels/cuda/common/panels.cuh"
#include "kernels/cuda/mamba/scan_tiles_chunks.cuh"

namespace lockstep {

inline constexpr int kWalkThreads = 2 * kWarpgroup;
inline constexpr int kWalkStages = 2;
inline constexpr int kOwnChannels = kTileHead / 4;  // Each of the four multiplying warps has 16.

using StatePanels = HeadPanels<kTileRows, kTileState>;
using ChannelPanel = HeadPanels<kTileRows, kTileHead>;

struct WalkShared {
  struct Stage {
    alignas(1024) unsigned char left[StatePanels::kBytes];    // B_j[n]; backward C_i[n].
    alignas(1024) unsigned char right[ChannelPanel::kBytes];  // x_j[p]; backward dy_i[p]. Scaled.
  } stage[kWalkStages];
  // A warp's channels of half a state, on their way to whole sectors of global memory.
  alignas(16) bf16 half[4][kTileState / 2][kOwnChannels];
  float products[1024];                  // The accumulators of R1024.
  float factor[kWalkStages][kTileRows];  // What each row is scaled by.
  float kept[kWalkStages];               // eL
  Barrier full[kWalkStages], free[kWalkStages];
  DocumentOrder order;

  __device__ void init() {
    for (int s = 0; s < kWalkStages; ++s) {
      full[s].init(kWarpgroup);
      free[s].init(kWarpgroup / kWarp);
    }
    fence_barriers();
  }
};
// What one multiprocessor has for two blocks.
static_assert(sizeof(WalkShared) <= (228 * 1024 - 2 * 1024) / 2);

// The lane's part of a head's state: channels 16w + g and 16w + g + 8 for warp w of the warpgroup,
// and of each the rows 8x + 2t and 8x + 2t + 1: c[x] is the fragment (mma.cuh) of dimension (p, n).
struct OwnState {
  float c[kTileState / 8][4] = {};
};
__device__ __forceinline__ int own_warp() { return warp_index() % (kWarpgroup / kWarp); }

// Stores the state of the warp's channels as rows n of bf16, a sector of 32 bytes each. The
// transposed matrices of stmatrix turn neighbours in n into neighbours in p.
__device__ __forceinline__ void store_rounded(bf16 (&half)[kTileState / 2][kOwnChannels], bf16* to,
                                              const OwnState& s) {
  constexpr int kHalf = kTileState / 2;
  // Pieces of 16 bytes change places every four rows, since eight rows would take the same banks
  // twice.
  const auto place = [&](int n, int piece) { return &half[n][8 * (piece ^ (n / 4 % 2))]; };
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    __syncwarp();  // The previous half has been read.
#pragma unroll
    for (int x = 0; x < kHalf / 8; x += 2) {
      const float(&low)[4] = s.c[kHalf / 8 * h + x];
      const float(&high)[4] = s.c[kHalf / 8 * h + x + 1];
      const int q = lane_index() / 8;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       shared_address(place(8 * (x + q / 2) + lane_index() % 8, q % 2))),
                   "r"(stored_pair(low[0], low[1])), "r"(stored_pair(low[2], low[3])),
                   "r"(stored_pair(high[0], high[1])), "r"(stored_pair(high[2], high[3]))
                   : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kHalf; i += kWarp / 2) {
      const int n = i + lane_index() / 2;
      const int piece = lane_index() % 2;
      *reinterpret_cast<Vec8*>(to + (kHalf * h + n) * kTileHead + kOwnChannels * own_warp() +
                               8 * piece) = *reinterpret_cast<const Vec8*>(place(n, piece));
    }
  }
}
// fp32 in the order of the lanes, since each lane reads what it wrote itself.
__device__ __forceinline__ float4* lane_order(float* to) {
  return reinterpret_cast<float4*>(to) + threadIdx.x % kWarpgroup;
}
__device__ __forceinline__ void store_exactly(float* to, const OwnState& s) {
#pragma unroll
  for (int x = 0; x < kTileState / 8; ++x)
    lane_order(to)[x * kWarpgroup] = make_float4(s.c[x][0], s.c[x][1], s.c[x][2], s.c[x][3]);
}

// What a thread of the loading warpgroup has of a chunk before it is scaled: eight channels of rows
// r, r + 16, .. and the decays of one row.
struct RowsAhead {
  static constexpr int kStride = kWarpgroup / (kTileHead / 8);
  Vec8 eight[kTileRows / kStride];
  float dt;
  float cs;
  float end;  // csL

  static __device__ __forceinline__ int row() {
    return static_cast<int>(threadIdx.x) / (kTileHead / 8);
  }
  static __device__ __forceinline__ int piece() {
    return static_cast<int>(threadIdx.x) % (kTileHead / 8);
  }

  template <class Op>
  __device__ __forceinline__ void load(const Op& op, const In<bf16>& from, const Chunk& chunk,
                                       int head) {
    const bf16* const own =
        row_of(from, chunk, head_column(head)) + row() * from.pitch + 8 * piece();
#pragma unroll
    for (int i = 0; i < kTileRows / kStride; ++i) {
      eight[i] = row() + kStride * i < chunk.rows
                     ? *reinterpret_cast<const Vec8*>(own + kStride * i * from.pitch)
                     : Vec8{};
    }
    const int own_row = static_cast<int>(threadIdx.x);
    dt = own_row < chunk.rows ? dt_place(op, chunk, head, own_row) : 0.0f;
    cs = cs_place(op, chunk, head, own_row < chunk.rows ? own_row : chunk.rows - 1);
    end = cs_place(op, chunk, head, chunk.rows - 1);
  }
  // The rows in their panel, each multiplied by its factor and rounded.
  __device__ __forceinline__ void store(std::uint32_t to, const float (&factor)[kTileRows]) {
#pragma unroll
    for (int i = 0; i < kTileRows / kStride; ++i) {
      const float f = factor[row() + kStride * i];
#pragma unroll
      for (std::uint32_t& pair : eight[i].pairs) pair = scaled_pair(pair, f);
    }
    to += panel_place(row(), piece());
#pragma unroll
    for (int i = 0; i < kTileRows / kStride; ++i) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + kStride * i * kPanelRow),
                   "r"(eight[i].pairs[0]), "r"(eight[i].pairs[1]), "r"(eight[i].pairs[2]),
                   "r"(eight[i].pairs[3])
                   : "memory");
    }
  }
};

// A kind of walk says what is multiplied (rows, column), what a row is scaled by (factor), and
// which chunk a step takes.
struct WalkForth {  // S: B_j[n] and x_j[p] scaled by w_j.
  template <class Op>
  static __device__ __forceinline__ const In<bf16>& rows(const Op& op) {
    return op.xbc;
  }
  template <class Op>
  static __device__ __forceinline__ std::int64_t column(const Op& op, int group) {
    return b_column(op, group);
  }
  static __device__ __forceinline__ float factor(const RowsAhead& rows) {
    return mul(expn(sub(rows.end, rows.cs)), rows.dt);
  }
  static __device__ __forceinline__ Chunk chunk(const ChunkedDocument& document, int step) {
    return document[step];
  }
};
struct WalkBack {  // dS: C_i[n] and dy_i[p] scaled by e_i.
  static __device__ __forceinline__ const In<bf16>& rows(const ScanBackward<bf16>& op) {
    return op.dy;
  }
  static __device__ __forceinline__ std::int64_t column(const ScanBackward<bf16>& op, int group) {
    return c_column(op, group);
  }
  static __device__ __forceinline__ float factor(const RowsAhead& rows) { return expn(rows.cs); }
  static __device__ __forceinline__ Chunk chunk(const ChunkedDocument& document, int step) {
    return document[document.chunks - 1 - step];
  }
};

// The loading warpgroup gives the rows of all chunks of a document but the last one of the walk.
template <class Walk, class Op>
__device__ __forceinline__ void feed_walk(WalkShared& shared, PipelineState<kWalkStages>& ring,
                                          const Op& op, const ChunkedDocument& document, int head) {
  const int steps = document.chunks - 1;
  if (steps == 0) return;
  const In<bf16>& from = Walk::rows(op);
  RowsAhead ahead;
  ahead.load(op, from, Walk::chunk(document, 0), head);
  for (int step = 0; step < steps; ++step, ring.next()) {
    const Chunk chunk = Walk::chunk(document, step);
    WalkShared::Stage& stage = shared.stage[ring.stage];
    shared.free[ring.stage].wait(ring.phase ^ 1);
    StatePanels::fill(shared_address(stage.left), op.xbc, chunk.start, chunk.rows,
                      Walk::column(op, group_of(op, head)), kTileState);
    close_copies();
    shared.factor[ring.stage][threadIdx.x] = Walk::factor(ahead);
    if (threadIdx.x == 0) shared.kept[ring.stage] = expn(ahead.end);
    wait_at(1, kWarpgroup);
    ahead.store(shared_address(stage.right), shared.factor[ring.stage]);
    if (step + 1 < steps) ahead.load(op, from, Walk::chunk(document, step + 1), head);
    wait_for_copies<0>();
    fence_for_tensor_core();
    shared.full[ring.stage].arrive();
  }
}
// The other one computes s = fma(eL, s, DOT over the chunk's rows of right(row, p), left(row, n)).
// keep(chunk, s) stores the state before each chunk of the walk.
template <class Walk, class Keep>
__device__ __forceinline__ void walk(WalkShared& shared, PipelineState<kWalkStages>& ring,
                                     const ChunkedDocument& document, const Keep& keep) {
  OwnState s;
  const int steps = document.chunks - 1;
  for (int step = 0; step < steps; ++step, ring.next()) {
    const WalkShared::Stage& stage = shared.stage[ring.stage];
    OwnState grown;
    shared.full[ring.stage].wait(ring.phase);
    const std::uint64_t a = factor_across_k(shared_address(stage.right), ChannelPanel::kPanel);
    const std::uint64_t b = factor_across_k(shared_address(stage.left), StatePanels::kPanel);
    warpgroup_arrive();
#pragma unroll
    for (int k = 0; k < kRowSteps; ++k) {
      const std::uint32_t down = k * kStep * kPanelRow;
      wgmma<1, 1>(grown.c, factor_at(a, down), factor_at(b, down), k != 0);
    }
    warpgroup_commit();
    keep(Walk::chunk(document, step), s);
    const float kept = shared.kept[ring.stage];
    warpgroup_wait<0>();
    warpgroup_fence_operand(grown.c);
    __syncwarp();
    if (lane_index() == 0) shared.free[ring.stage].arrive();
#pragma unroll
    for (int x = 0; x < kTileState / 8; ++x) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s.c[x][e] = fma(kept, s.c[x][e], grown.c[x][e]);
    }
  }
  keep(Walk::chunk(document, steps), s);
}

// One warpgroup feeds and the other walks. keep(document's chunk, head, s).
template <class Walk, class Op, class Keep>
__device__ __forceinline__ void walk_documents(WalkShared& shared, const Op& op, const Keep& keep) {
  if (threadIdx.x == 0) shared.init();
  __syncthreads();
  PipelineState<kWalkStages> ring;
  if (static_cast<int>(threadIdx.x) < kWarpgroup) {
    give_registers<72>();
    each_document(shared.order, op, [&](const ChunkedDocument& document, int head) {
      feed_walk<Walk>(shared, ring, op, document, head);
    });
  } else {
    take_registers<184>();
    each_document(shared.order, op, [&](const ChunkedDocument& document, int head) {
      walk<Walk>(shared, ring, document,
                 [&](const Chunk& chunk, const OwnState& s) { keep(chunk, head, s); });
    });
  }
}

// The grid is walk_grid().
template <class Op>
__global__ void __launch_bounds__(kWalkThreads, 2) tile_states(Op op) {
  pdl_begin();
  extern __shared__ __align__(1024) unsigned char walk_memory[];
  WalkShared& shared = *reinterpret_cast<WalkShared*>(walk_memory);
  walk_documents<WalkForth>(shared, op, [&](const Chunk& chunk, int head, const OwnState& s) {
    store_rounded(shared.half[own_warp()], stored_state(op, chunk.index, head), s);
    if constexpr (std::is_same_v<Op, ScanBackward<bf16>>)
      store_exactly(head_part(op.states, chunk.index, head), s);
  });
}

}  // namespace lockstep
