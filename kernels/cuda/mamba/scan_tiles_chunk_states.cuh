// The chunk states in tiles, for packs whose states fit the L2 cache. What a chunk's rows add to
// the state of their document (and from the other end to dS) does not depend on other chunks, so
// all additions are computed at once. Then warps walk the chunks of each document, with one `fma`
// per element and chunk.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_chunks.cuh"

namespace lockstep {

// The most states that the rows of a pack may need. All chunks write and read a state at once.
inline constexpr std::int64_t kMostStatesAtOnce = 2048;  // 64 MiB, most of it unused.
template <class Op>
bool grows_at_once(const Op& op) {
  return std::int64_t{chunks_in_grid(op)} * op.heads <= kMostStatesAtOnce;
}

struct GrowthShared {
  RowsByState left;  // B_j[n]; for dS C_i[n].
  RowsByHead right;  // x_j[p]; for dS dy_i[p]. Scaled in place.
  TileDecay decay;
};
// to[n, p] = DOT over the chunk's rows of left(row, n), right(row, p); each warp computes 64 x 32.
__device__ __forceinline__ void sum_growth(float* to, const GrowthShared& shared, int rows) {
  constexpr int kAcross = 4;
  constexpr int kAlong = 4;
  const int n0 = 64 * (warp_index() % 2);
  const int p0 = 32 * (warp_index() / 2);
  float grown[kAcross][kAlong][4] = {};
  for (int j = 0; j < rows; j += kStep) {
    std::uint32_t b[2][2][2];
    right_across(b[0], shared.right, p0, j);
    right_across(b[1], shared.right, p0 + 16, j);
#pragma unroll
    for (int m = 0; m < kAcross; ++m) {
      std::uint32_t a[4];
      left_across(a, shared.left, n0 + 16 * m, j);
#pragma unroll
      for (int x = 0; x < kAlong; ++x) fda16(grown[m][x], a, b[x / 2][x % 2]);
    }
  }
#pragma unroll
  for (int m = 0; m < kAcross; ++m) {
#pragma unroll
    for (int x = 0; x < kAlong; ++x) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int n = n0 + 16 * m + lane_group() + 8 * h;
        float* const place = to + exact_place(n, p0 + 8 * x + 2 * lane_place());
        *reinterpret_cast<float2*>(place) = make_float2(grown[m][x][2 * h], grown[m][x][2 * h + 1]);
      }
    }
  }
}

// What a chunk adds, by the whole block. The last chunk of a document adds to no state, and the
// first one to no dS.
template <class Op>
__device__ __forceinline__ void give_growth(GrowthShared& shared, const Op& op, const Chunk& chunk,
                                            int head, bool of_gradient) {
  constexpr bool is_backward = std::is_same_v<Op, ScanBackward<bf16>>;
  const bool grows = of_gradient ? !begins_document(op, chunk.index) : continues(op, chunk.index);
  if (of_gradient && !grows) return;
  if (grows) {
    const int group = group_of(op, head);
    start_rows(shared.left, op.xbc, chunk, of_gradient ? c_column(op, group) : b_column(op, group));
    if constexpr (is_backward) {
      start_rows(shared.right, of_gradient ? op.dy : op.xbc, chunk, x_column(op, head));
    } else {
      start_rows(shared.right, op.xbc, chunk, x_column(op, head));
    }
  }
  close_copies();
  find_decays(shared.decay, op, chunk, head);
  const int own = static_cast<int>(threadIdx.x);
  const float dt = shared.decay.dt[own];
  const float cs = shared.decay.cs[own];
  if (!of_gradient) keep_decays(shared.decay, op, chunk, head);
  if (!grows) return;
  wait_for_copies<0>();
  __syncthreads();
  scale_row(shared.right, of_gradient ? expn(cs) : mul(shared.decay.to_end(own), dt));
  __syncthreads();
  float* to = head_part(op.states, chunk.index, head);
  if constexpr (is_backward) to = of_gradient ? head_part(op.dstates, chunk.index, head) : to;
  sum_growth(to, shared, chunk.rows);
}

// Grid: (chunk, head), and for the backward scan a second one for dS.
template <class Op>
__global__ void __launch_bounds__(kDecayThreads, 4) tile_growths(Op op) {
  pdl_begin();
  extern __shared__ __align__(16) std::byte memory[];
  GrowthShared& shared = *reinterpret_cast<GrowthShared*>(memory);
  clear_results(op);
  each_chunk(op, [&](const Chunk& chunk) {
    give_growth(shared, op, chunk, static_cast<int>(blockIdx.y), blockIdx.z == 1);
  });
}

// A lane's elements of a state: four neighbours of row 16k + 2w + l / 16, for all k. They feed four
// of the accumulators of R1024. A warp has whole rows, so that it may overwrite a row's fp32 with
// its bf16.
struct LaneState {
  float4 of[kTileState / 16] = {};

  static __device__ __forceinline__ int row() { return 2 * warp_index() + lane_index() / 16; }
  static __device__ __forceinline__ int column() { return lane_index() % 16 * 4; }
  __device__ __forceinline__ void load(const float* from) {
    from += exact_place(row(), column());
#pragma unroll
    for (int k = 0; k < kTileState / 16; ++k)
      of[k] = *reinterpret_cast<const float4*>(from + exact_place(16 * k, 0));
  }
  __device__ __forceinline__ void store_exactly(float* to) const {
    to += exact_place(row(), column());
#pragma unroll
    for (int k = 0; k < kTileState / 16; ++k)
      *reinterpret_cast<float4*>(to + exact_place(16 * k, 0)) = of[k];
  }
  __device__ __forceinline__ void store_rounded(bf16* to) const {
    to += row() * kTileHead + column();
#pragma unroll
    for (int k = 0; k < kTileState / 16; ++k) {
      *reinterpret_cast<uint2*>(to + 16 * k * kTileHead) =
          make_uint2(stored_pair(of[k].x, of[k].y), stored_pair(of[k].z, of[k].w));
    }
  }
  // s = fma(eL, s, grown)
  __device__ __forceinline__ void advance(float kept, const LaneState& grown) {
#pragma unroll
    for (int k = 0; k < kTileState / 16; ++k) {
      of[k].x = fma(kept, of[k].x, grown.of[k].x);
      of[k].y = fma(kept, of[k].y, grown.of[k].y);
      of[k].z = fma(kept, of[k].z, grown.of[k].z);
      of[k].w = fma(kept, of[k].w, grown.of[k].w);
    }
  }
};
template <class Op>
__device__ __forceinline__ float kept_by(const Op& op, const Chunk& chunk, int head) {
  return expn(cs_place(op, chunk, head, chunk.rows - 1));  // eL
}

// The warp's v_w of ss = R1024 over n * 64 + p of fma(dS, S, acc).
__device__ __forceinline__ float sum_of_products(const LaneState& ds, const LaneState& s) {
  Accumulators a;
#pragma unroll
  for (int k = 0; k < kTileState / 16; ++k) {
    a.acc[0] = fma(ds.of[k].x, s.of[k].x, a.acc[0]);
    a.acc[1] = fma(ds.of[k].y, s.of[k].y, a.acc[1]);
    a.acc[2] = fma(ds.of[k].z, s.of[k].z, a.acc[2]);
    a.acc[3] = fma(ds.of[k].w, s.of[k].w, a.acc[3]);
  }
  return tree128(a);
}

// Computes Sb at the start of each chunk from the additions.
static __global__ void __launch_bounds__(kThreads, 2) tile_grown_states(ScanForward<bf16> op) {
  pdl_begin();
  __shared__ DocumentOrder order;
  each_document(order, op, [&](const ChunkedDocument& document, int head) {
    LaneState s;
    LaneState grown;
    const int last = document.chunks - 1;
    if (last > 0) grown.load(head_part(op.states, document.first, head));
    for (int c = 0; c <= last; ++c) {
      const Chunk chunk = document[c];
      LaneState next;
      if (c + 1 < last) next.load(head_part(op.states, chunk.index + 1, head));
      __syncwarp();  // All of the row has been read.
      s.store_rounded(stored_state(op, chunk.index, head));
      if (c == last) return;
      s.advance(kept_by(op, chunk, head), grown);
      grown = next;
    }
  });
}

// The same for the backward scan, with ss: S from the first chunk to the last, then dS back. S
// replaces the additions to it until dS has used it.
static __global__ void __launch_bounds__(kThreads, 2) tile_grown_gradients(ScanBackward<bf16> op) {
  pdl_begin();
  __shared__ DocumentOrder order;
  each_document(order, op, [&](const ChunkedDocument& document, int head) {
    const int last = document.chunks - 1;
    {
      LaneState s;
      for (int c = 0; c <= last; ++c) {
        const Chunk chunk = document[c];
        float* const place = head_part(op.states, chunk.index, head);
        LaneState grown;
        if (c != last) grown.load(place);
        s.store_exactly(place);
        if (c != last) s.advance(kept_by(op, chunk, head), grown);
      }
    }
    LaneState ds;
    for (int c = last; c >= 0; --c) {
      const Chunk chunk = document[c];
      float* const place = head_part(op.states, chunk.index, head);
      LaneState s;
      LaneState grown;
      s.load(place);
      if (c != 0) grown.load(head_part(op.dstates, chunk.index, head));
      __syncwarp();  // All of the rows have been read.
      const float sum = sum_of_products(ds, s);
      if (lane_index() == 0) state_sum(op, chunk.index, head, warp_index()) = sum;
      s.store_rounded(stored_state(op, chunk.index, head));
      ds.store_rounded(stored_dstate(op, chunk.index, head));
      if (c != 0) ds.advance(kept_by(op, chunk, head), grown);
    }
  });
}

}  // namespace lockstep
