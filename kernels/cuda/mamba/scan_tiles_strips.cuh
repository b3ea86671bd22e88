// Parts of the kernels in which one warpgroup loads the factors of a head and two compute with
// wgmma: panels of rows by channels, and the sixteen rows of a chunk that a computing warp owns.
#pragma once

#include "kernels/cuda/mamba/scan_tiles_states.cuh"

namespace lockstep {

inline constexpr int kComputingWarps = 2 * kWarpgroup / kWarp;
inline constexpr int kBlocks = kTileRows / 8;  // Blocks of eight rows.

// ---- Items --------------------------------------------------------------------------------------
// The order in which persistent blocks take chunks: the fullest first, so that the last round, in
// which some blocks have no item, is short. Found by the whole block.
struct ChunkOrder {
  static constexpr int kMost = 3 * kWarpgroup;  // With more, chunks are taken as they come.
  std::int16_t rows[kMost];
  std::int16_t chunks[kMost];

  template <class Op>
  __device__ __forceinline__ void find(const Op& op) {
    const int own = static_cast<int>(threadIdx.x);
    const auto all = static_cast<int>(smaller(kMost, op.chunk_document.cols));
    const int mine = own < all ? chunk_at(op, own).rows : 0;
    rows[own] = static_cast<std::int16_t>(mine);
    // Chunks of 0 rows, which lie behind all others, stay there. A pack of few chunks has many.
    const int some = __syncthreads_count(mine != 0);
    if (own < some) {
      int place = 0;
#pragma unroll 8
      for (int k = 0; k < some; ++k) place += rows[k] >= mine + (k < own ? 0 : 1);
      chunks[place] = static_cast<std::int16_t>(own);
    } else if (own < all) {
      chunks[own] = static_cast<std::int16_t>(own);
    }
    __syncthreads();
  }
  // The chunk of rank `rank`; one of 0 rows if there are not so many.
  template <class Op>
  __device__ __forceinline__ Chunk operator()(const Op& op, std::int64_t rank) const {
    if (rank >= op.chunk_document.cols) return {rank, 0, 0};
    return chunk_at(op, op.chunk_document.cols <= kMost ? chunks[rank] : rank);
  }
};
// Calls work(chunk, part) for a block's share of the parts of all chunks.
template <class Op, class Work>
__device__ __forceinline__ void each_part(const ChunkOrder& order, const Op& op, unsigned parts,
                                          const Work& work) {
  for (unsigned item = blockIdx.x;; item += gridDim.x) {
    const Chunk chunk = order(op, item / parts);
    if (chunk.rows == 0) return;  // So have all behind it.
    work(chunk, static_cast<int>(item % parts));
  }
}

// ---- Loading ------------------------------------------------------------------------------------
// Starts the copies of a panel's rows, of which the first `rows` exist; the others become +0. Each
// thread of the loading warpgroup copies one piece of 16 bytes of rows r, r + 16, ..
__device__ __forceinline__ void start_panel(std::uint32_t to, const bf16* from, std::int64_t pitch,
                                            int rows) {
  to += panel_place(RowsAhead::row(), RowsAhead::piece());
  from += RowsAhead::row() * pitch + 8 * RowsAhead::piece();
#pragma unroll
  for (int i = 0; i < kTileRows; i += RowsAhead::kStride)
    copy_16(to + i * kPanelRow, from + i * pitch, RowsAhead::row() + i < rows);
}
__device__ __forceinline__ void fetch_into_l2(const bf16* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}
// Arrives at the barrier once the copies that this thread has started have ended. They are not
// ordered before the tensor core's reads: who waits calls fence_for_tensor_core().
__device__ __forceinline__ void arrive_after_copies(Barrier& barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier))
      : "memory");
}

// ---- Own rows -----------------------------------------------------------------------------------
// A computing warp owns block b of the chunk (half 0: rows g of its fragments) and block 15 - b
// (half 1: rows g + 8). So all warps have as many pairs of an earlier and a later row.
__device__ __forceinline__ int own_block() {
  const bool is_first = static_cast<int>(threadIdx.x) < 2 * kWarpgroup;
  return is_first ? own_warp() : kComputingWarps - 1 - own_warp();
}
__device__ __forceinline__ int own_block(int half) {
  return half == 0 ? own_block() : kBlocks - 1 - own_block();
}
__device__ __forceinline__ int own_row(int half) { return 8 * own_block(half) + lane_group(); }
// The first row of a block in the order of the computing warps and their fragments.
__host__ __device__ constexpr int place_of_block(int block) {
  const int early = block < kComputingWarps ? block : kBlocks - 1 - block;
  const int warp = early < 4 ? early : kComputingWarps + 3 - early;
  return 16 * warp + (block < kComputingWarps ? 0 : 8);
}
// Pairs of an own row with rows up to it: sixteens s below early_steps() concern both halves, those
// below late_steps() half 1. Pairs with rows from an own row on: sixteens from first_of_late() on
// concern both halves, those from first_of_early() on half 0.
__device__ __forceinline__ int early_steps(int rows) {
  return 8 * own_block() < rows ? own_block() / 2 + 1 : 0;
}
__device__ __forceinline__ int late_steps(int rows) {
  return 8 * own_block(1) < rows ? kRowSteps - own_block() / 2 : 0;
}
__device__ __forceinline__ int first_of_early() { return own_block() / 2; }
__device__ __forceinline__ int first_of_late() { return kRowSteps - 1 - own_block() / 2; }

// Starts the copies of a group's rows over the state in the order of the computing warps.
__device__ __forceinline__ void start_own_rows(std::uint32_t to, const In<bf16>& from,
                                               const Chunk& chunk, std::int64_t column) {
  constexpr int kPieces = kTileState / 8;
  static_assert(kWarpgroup / kPieces == 8);
  const int row = static_cast<int>(threadIdx.x) / kPieces;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
  const bf16* const place = row_of(from, chunk, column) + row * from.pitch + 8 * piece;
  to += static_cast<std::uint32_t>(piece / 8) * StatePanels::kPanel + panel_place(row, piece % 8);
#pragma unroll
  for (int block = 0; block < kBlocks; ++block)
    copy_16(to + place_of_block(block) * kPanelRow, place + 8 * block * from.pitch,
            row + 8 * block < chunk.rows);
}

// Ld of own rows and sixteen others. `own_is_later`: the warp's rows are i and the others j;
// otherwise the reverse. Element q of a half is that of column 8 * (q / 2) + 2t + q % 2. `little`:
// decays_little(cs). Then the eight chains of expn run side by side: each clamp needs a predicate,
// of which the kernels have one left, and with clamps the chains take turns.
template <bool own_is_later, int kFirst, int kLast>
__device__ __forceinline__ void decay_between(float (&ld)[2][4], int s,
                                              const float (&cs)[kTileRows],
                                              const float (&own_cs)[2], bool little) {
  const auto each = [&](auto f) {
    const float* const others = &cs[kStep * s + 2 * lane_place()];
    const float2 low = *reinterpret_cast<const float2*>(others);
    const float2 high = *reinterpret_cast<const float2*>(others + 8);
    const float other[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
    for (int h = kFirst; h <= kLast; ++h) {
#pragma unroll
      for (int q = 0; q < 4; ++q)
        f(ld[h][q], own_is_later ? sub(own_cs[h], other[q]) : sub(other[q], own_cs[h]));
    }
  };
  each([](float& to, float x) { to = x; });
  expn_of_halves<kFirst, kLast>(ld);
  if (little) return;
  // Few heads come here, so the differences are computed again. The compiler, which would rather
  // keep them in registers for that, may not assume that `cs` has stayed as it was.
  asm volatile("" ::: "memory");
  each([](float& to, float x) { to = clamp_expn(x, to); });
}
// Makes +0 what belongs to a later row that comes before the earlier one. Only the sixteen that
// holds the own block has such pairs.
template <bool own_is_later, int kFirst, int kLast>
__device__ __forceinline__ void clear_other_side(float (&m)[2][4], int s) {
#pragma unroll
  for (int h = kFirst; h <= kLast; ++h) {
    if (own_block(h) / 2 != s) continue;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int other = kStep * s + 8 * (q / 2) + 2 * lane_place() + q % 2;
      m[h][q] = (own_is_later ? other <= own_row(h) : own_row(h) <= other) ? m[h][q] : 0.0f;
    }
  }
}
// st of both halves as a left factor.
template <int kFirst, int kLast>
__device__ __forceinline__ void take_halves(std::uint32_t (&a)[4], const float (&m)[2][4]) {
#pragma unroll
  for (int h = kFirst; h <= kLast; ++h) {
    a[h] = stored_pair(m[h][0], m[h][1]);
    a[2 + h] = stored_pair(m[h][2], m[h][3]);
  }
}

// The place in a panel that the lane gives to ldmatrix or stmatrix for step k of the own rows.
__device__ __forceinline__ std::uint32_t own_place(int k) {
  const int q = lane_index() / 8;
  return panel_place(8 * own_block(q % 2) + lane_index() % 8, 2 * k + q / 2);
}
// The warp's rows of a panel over the head's channels, as left factors; the next function also
// scales them by a factor per row.
using OwnSteps = std::uint32_t[kHeadSteps][4];
__device__ __forceinline__ void own_steps(OwnSteps& a,
                                          const unsigned char (&panel)[ChannelPanel::kBytes]) {
#pragma unroll
  for (int k = 0; k < kHeadSteps; ++k)
    take_blocks(a[k][0], a[k][1], a[k][2], a[k][3],
                reinterpret_cast<const bf16*>(&panel[own_place(k)]));
}
__device__ __forceinline__ void scale_steps(OwnSteps& a, const float (&factor)[2]) {
#pragma unroll
  for (int k = 0; k < kHeadSteps; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[k][r] = scaled_pair(a[k][r], factor[r % 2]);
  }
}
// Element e of the lane in columns 8x .. 8x + 7.
__device__ __forceinline__ float element_of(const OwnSteps& a, int x, int e) {
  const std::uint32_t pair = a[x / 2][x % 2 * 2 + e / 2];
  return e % 2 == 0 ? low_of(pair) : high_of(pair);
}
// Stores value(x, e) as the warp's rows of 64 columns, through its rows of the panel. `to`: the
// chunk's first row.
template <class F>
__device__ __forceinline__ void store_own(unsigned char (&panel)[ChannelPanel::kBytes], bf16* to,
                                          std::int64_t pitch, int rows, F value) {
#pragma unroll
  for (int k = 0; k < kHeadSteps; ++k) {
    const int x = 2 * k;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(&panel[own_place(k)])),
                 "r"(stored_pair(value(x, 0), value(x, 1))),
                 "r"(stored_pair(value(x, 2), value(x, 3))),
                 "r"(stored_pair(value(x + 1, 0), value(x + 1, 1))),
                 "r"(stored_pair(value(x + 1, 2), value(x + 1, 3)))
                 : "memory");
  }
  __syncwarp();
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int row = 8 * own_block(part / 2) + lane_index() / 8 + part % 2 * 4;
    const int piece = lane_index() % 8;
    if (row < rows)
      *reinterpret_cast<Vec8*>(to + row * pitch + 8 * piece) =
          *reinterpret_cast<const Vec8*>(&panel[panel_place(row, piece)]);
  }
}
__device__ __forceinline__ void scale_own(float (&sum)[8][4], const float (&factor)[2]) {
#pragma unroll
  for (int x = 0; x < 8; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[x][e] = mul(sum[x][e], factor[e / 2]);
  }
}
__device__ __forceinline__ void end_chains(float (&sum)[8][4]) {
#pragma unroll
  for (int x = 0; x < 8; ++x) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[x][e] = add(sum[x][e], 0.0f);
  }
}
// Continues sum[own, p] over the chunk's rows with m[own, row], rows[row, p].
__device__ __forceinline__ void start_over_rows(float (&sum)[8][4],
                                                const std::uint32_t (&m)[kRowSteps][4],
                                                std::uint32_t rows) {
  const std::uint64_t b = factor_across_k(rows, ChannelPanel::kPanel);
  warpgroup_fence_operand(sum);
  warpgroup_arrive();
#pragma unroll
  for (int s = 0; s < kRowSteps; ++s) wgmma<1>(sum, m[s], factor_at(b, s * kStep * kPanelRow), 1);
  warpgroup_commit();
}
// Tells the loading warpgroup that the warp is done with what the barrier guards.
__device__ __forceinline__ void release(Barrier& barrier) {
  __syncwarp();
  if (lane_index() == 0) barrier.arrive();
}

}  // namespace lockstep
