// The bf16 scan for the common sizes: heads of 64 channels, a state of 128, chunks of at most 128
// rows. A warp owns 16 rows of a chunk and keeps in registers what the heads of a group share (C
// B^T). Other sizes take scan_bf16.cuh.
#pragma once

#include "kernels/cuda/common/vec8.cuh"
#include "kernels/cuda/common/warp_tile.cuh"
#include "kernels/cuda/mamba/scan_backward.cuh"

namespace lockstep {

inline constexpr int kTileRows = 128;
inline constexpr int kTileState = 128;
inline constexpr int kTileHead = 64;
inline constexpr int kStateElements = kTileState * kTileHead;
inline constexpr int kRowSteps = kTileRows / kStep;
inline constexpr int kStateSteps = kTileState / kStep;
inline constexpr int kHeadSteps = kTileHead / kStep;

using RowsByState = SharedTile<kTileRows, kTileState>;  // B_j[n] or C_i[n].
using RowsByHead = SharedTile<kTileRows, kTileHead>;    // x_j[p], dy_i[p].
using StateByHead = SharedTile<kTileState, kTileHead>;  // Sb[n, p], dSb[n, p].

template <class Op>
bool has_tile_sizes(const Op& op) {
  return host_head_rows(op) == kTileHead && op.state == kTileState && op.chunk <= kTileRows &&
         is_vectorizable(op.xbc) && is_vectorizable(op.states);
}
inline bool runs_in_tiles(const ScanForward<bf16>& op) {
  return has_tile_sizes(op) && is_vectorizable(op.y);
}
inline bool runs_in_tiles(const ScanBackward<bf16>& op) {
  return has_tile_sizes(op) && is_vectorizable(op.dy) && is_vectorizable(op.dxbc) &&
         is_vectorizable(op.dstates);
}

// ---- Scratch ------------------------------------------------------------------------------------
// A head's part of a row of chunk states holds kStateElements fp32, used for one thing after
// another:
//   forward   `states`: what the chunk adds to the state, then Sb
//             `y`: dt and cs of the chunk's rows, until the head's outputs take their place
//   backward  `states`: what is added to S, then S, and once dS is known the ScratchLayout below
//             `dstates`: what is added to dS, then dSb and Sb
//             `rows`: dt and cs, until the terms of the parameters' gradients take their place
__device__ __forceinline__ float* head_part(const Scratch<float>& of, std::int64_t chunk,
                                            int head) {
  return of.data + chunk * of.pitch + static_cast<std::int64_t>(head) * kStateElements;
}
// The index of element (n, p) in fp32. Row n takes the bytes of row n of two bf16 states.
__host__ __device__ constexpr int exact_place(int n, int p) {
  return n * (kTileHead / 2) + p % (kTileHead / 2) + p / (kTileHead / 2) * (kStateElements / 2);
}
__device__ __forceinline__ bf16* stored_state(const ScanForward<bf16>& op, std::int64_t chunk,
                                              int head) {
  return reinterpret_cast<bf16*>(head_part(op.states, chunk, head));
}
__device__ __forceinline__ bf16* stored_state(const ScanBackward<bf16>& op, std::int64_t chunk,
                                              int head) {
  return reinterpret_cast<bf16*>(head_part(op.dstates, chunk, head)) + kStateElements;
}
__device__ __forceinline__ bf16* stored_dstate(const ScanBackward<bf16>& op, std::int64_t chunk,
                                               int head) {
  return reinterpret_cast<bf16*>(head_part(op.dstates, chunk, head));
}
// x_column of a head.
__device__ __forceinline__ std::int64_t head_column(int head) {
  return static_cast<std::int64_t>(head) * kTileHead;
}
// dt_j and cs_j of the forward scan. A head's 64 channels of a row of y hold 32 fp32.
__device__ __forceinline__ float& decay_place(const ScanForward<bf16>& op, const Chunk& chunk,
                                              int head, int k) {
  bf16* const row =
      op.y.data + (chunk.start + k / (kTileHead / 2)) * op.y.pitch + head_column(head);
  return reinterpret_cast<float*>(row)[k % (kTileHead / 2)];
}
__device__ __forceinline__ float& dt_place(const ScanForward<bf16>& op, const Chunk& chunk,
                                           int head, int j) {
  return decay_place(op, chunk, head, j);
}
__device__ __forceinline__ float& cs_place(const ScanForward<bf16>& op, const Chunk& chunk,
                                           int head, int j) {
  return decay_place(op, chunk, head, chunk.rows + j);
}
__device__ __forceinline__ float& dt_place(const ScanBackward<bf16>& op, const Chunk& chunk,
                                           int head, int j) {
  return row_term(op, chunk.start + j, kG, head);
}
__device__ __forceinline__ float& cs_place(const ScanBackward<bf16>& op, const Chunk& chunk,
                                           int head, int j) {
  return row_term(op, chunk.start + j, kH, head);
}
enum RowSum : int { kSumG = 0, kSumH = 1, kSumQ = 2, kSumD = 3, kRowSumKinds = 4 };

// A head's part of `states` in the backward pass once dS is known: offsets in fp32 elements.
struct ScratchLayout {
  static constexpr int kStateSumPitch = exact_place(2, 0);  // Warp w's sum lies in its own rows.
  static constexpr int kStateSums = 0;                      // v_w of ss, by each of the warps.
  static constexpr int kRowSums = kWarps * kStateSumPitch;  // [kRowSumKinds][kTileRows]
  // KKb of the group, in the part of its first head.
  static constexpr int kPairs = kRowSums + kRowSumKinds * kTileRows;
  static constexpr int kDecays = 6144;  // dt, then cs: [2][kTileRows]
  static_assert(kDecays + 2 * kTileRows <= kStateElements);
};

__device__ __forceinline__ float& state_sum(const ScanBackward<bf16>& op, std::int64_t chunk,
                                            int head, int w) {
  return head_part(op.states, chunk,
                   head)[ScratchLayout::kStateSums + w * ScratchLayout::kStateSumPitch];
}
// g_j, h_j, q_j or R128(dy_j x_j) of row j.
__device__ __forceinline__ float& row_sum(const ScanBackward<bf16>& op, std::int64_t chunk,
                                          int head, RowSum which, int j) {
  return head_part(op.states, chunk, head)[ScratchLayout::kRowSums + which * kTileRows + j];
}
// A second copy of the decays, for the kernels that run after `rows` has been overwritten.
__device__ __forceinline__ float* kept_decays(const ScanBackward<bf16>& op, std::int64_t chunk,
                                              int head) {
  return head_part(op.states, chunk, head) + ScratchLayout::kDecays;
}

// ---- Decays -------------------------------------------------------------------------------------
struct TileDecay {
  float dt[kTileRows];
  float cs[kTileRows];

  // Starts the copies, by the whole block. Past the chunk's end dt is +0 and cs that of the last
  // row.
  template <class Op>
  __device__ __forceinline__ void start(const Op& op, const Chunk& chunk, int head) {
    for (int j = static_cast<int>(threadIdx.x); j < kTileRows; j += static_cast<int>(blockDim.x)) {
      const bool inside = j < chunk.rows;
      start_copy_4(&dt[j], &dt_place(op, chunk, head, inside ? j : 0), inside);
      start_copy_4(&cs[j], &cs_place(op, chunk, head, inside ? j : chunk.rows - 1), true);
    }
  }
  // The same from kept_decays; the next function writes there after the copies have arrived.
  __device__ __forceinline__ void start_kept(const float* from) {
    for (int j = static_cast<int>(threadIdx.x); j < kTileRows; j += static_cast<int>(blockDim.x)) {
      start_copy_4(&dt[j], from + j, true);
      start_copy_4(&cs[j], from + kTileRows + j, true);
    }
  }
  __device__ __forceinline__ void keep(float* to) const {
    for (int j = static_cast<int>(threadIdx.x); j < kTileRows; j += static_cast<int>(blockDim.x)) {
      to[j] = dt[j];
      to[kTileRows + j] = cs[j];
    }
  }
  __device__ __forceinline__ float end() const { return cs[kTileRows - 1]; }                // csL
  __device__ __forceinline__ float to_end(int j) const { return expn(sub(end(), cs[j])); }  // r_j
  __device__ __forceinline__ float between(float cs_i, int j) const {
    return expn(sub(cs_i, cs[j]));
  }
};

// ---- Operands -----------------------------------------------------------------------------------
__device__ __forceinline__ const bf16* row_of(const In<bf16>& from, const Chunk& chunk,
                                              std::int64_t column) {
  return from.data + chunk.start * from.pitch + column;
}
template <int kRows, int kColumns>
__device__ __forceinline__ void start_rows(SharedTile<kRows, kColumns>& to, const In<bf16>& from,
                                           const Chunk& chunk, std::int64_t column) {
  start_copy(to, row_of(from, chunk, column), from.pitch, chunk.rows);
}
__device__ __forceinline__ void start_state(StateByHead& to, const bf16* from) {
  start_copy(to, from, kTileHead, kTileState);
}

// Sums of a warp's 16 x (8 kTiles) results.
template <int kTiles>
struct WarpSum {
  float c[kTiles][4] = {};
};
// Continues sum[m, n] with sixteen products a[m, k], right[n, k0 + k]. The rows of `right` run
// across k, or along it.
template <int kTiles, class Tile>
__device__ __forceinline__ void extend_across(WarpSum<kTiles>& sum, const std::uint32_t (&a)[4],
                                              const Tile& right, int k0) {
#pragma unroll
  for (int x = 0; x < kTiles; x += 2) {
    std::uint32_t b[2][2];
    right_across(b, right, 8 * x, k0);
    fda16(sum.c[x], a, b[0]);
    fda16(sum.c[x + 1], a, b[1]);
  }
}
template <int kTiles, class Tile>
__device__ __forceinline__ void extend_along(WarpSum<kTiles>& sum, const std::uint32_t (&a)[4],
                                             const Tile& right, int k0) {
#pragma unroll
  for (int x = 0; x < kTiles; x += 2) {
    std::uint32_t b[2][2];
    right_along(b, right, 8 * x, k0);
    fda16(sum.c[x], a, b[0]);
    fda16(sum.c[x + 1], a, b[1]);
  }
}
// The sixteen rows of the chunk that a warp owns. Later rows have more work, and warps w and w + 4
// share a scheduler, so the second four warps own theirs in reverse order.
__device__ __forceinline__ int own_sixteen() {
  return warp_index() < 4 ? warp_index() : 11 - warp_index();
}

// Sums for pairs of rows of the lower triangle, in tiles of 16 x 16. Each lane keeps its own
// elements.
inline constexpr int kSixteens = kRowSteps * (kRowSteps + 1) / 2;
__device__ __forceinline__ int sixteen(int later, int earlier) {
  return later * (later + 1) / 2 + earlier;
}
struct PairSums {
  float4 of[kSixteens][2][kWarp];

  __device__ __forceinline__ void get(float (&c)[2][4], int index) const {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float4 four = of[index][x][lane_index()];
      c[x][0] = four.x;
      c[x][1] = four.y;
      c[x][2] = four.z;
      c[x][3] = four.w;
    }
  }
  __device__ __forceinline__ void set(int index, const float (&c)[2][4]) {
#pragma unroll
    for (int x = 0; x < 2; ++x)
      of[index][x][lane_index()] = make_float4(c[x][0], c[x][1], c[x][2], c[x][3]);
  }
};
// Loads the warp's sixteen rows from global memory as left factors over the state. Rows past the
// chunk's end are +0.
__device__ __forceinline__ void own_state_steps(std::uint32_t (&steps)[kStateSteps][4],
                                                const In<bf16>& from, const Chunk& chunk,
                                                std::int64_t column) {
  const bf16* const own = row_of(from, chunk, column) + 2 * lane_place();
#pragma unroll
  for (int k = 0; k < kStateSteps; ++k) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = 16 * own_sixteen() + lane_group() + 8 * (r % 2);
      const bf16* const place = own + i * from.pitch + kStep * k + 8 * (r / 2);
      steps[k][r] = i < chunk.rows ? *reinterpret_cast<const std::uint32_t*>(place) : 0;
    }
  }
}
// own_m . other_n over the state for the warp's rows and the sixteens up to its own, or from its
// own on.
template <bool own_is_later>
__device__ __forceinline__ void group_products(PairSums& g,
                                               const std::uint32_t (&steps)[kStateSteps][4],
                                               const RowsByState& others, int rows) {
  const int own = own_sixteen();
  for (int s = own_is_later ? 0 : own; own_is_later ? s <= own : kStep * s < rows; ++s) {
    WarpSum<2> dot;
#pragma unroll
    for (int k = 0; k < kStateSteps; ++k) {
      std::uint32_t b[2][2];
      right_along(b, others, kStep * s, kStep * k);
      fda16(dot.c[0], steps[k], b[0]);
      fda16(dot.c[1], steps[k], b[1]);
    }
    g.set(own_is_later ? sixteen(own, s) : sixteen(s, own), dot.c);
  }
}

// expn of eight numbers. They advance together step by step: left to itself, the assembler saves
// registers and computes one after the other. The clamp of expn is not needed, since what it keeps
// from overflowing becomes +0.
__device__ __forceinline__ void expn_of_eight(float (&x)[2][4]) {
  float t[2][4];
  float p[2][4];
  const auto each = [](auto step) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) step(k, e);
    }
  };
  each([&](int k, int e) { t[k][e] = fma(x[k][e], kLog2E, kRound); });
  each([&](int k, int e) { p[k][e] = exp_remainder(x[k][e], t[k][e]); });
  each([&](int k, int e) { p[k][e] = exp_poly(p[k][e]); });
  each([&](int k, int e) { p[k][e] = from_bits(bits(p[k][e]) + (bits(t[k][e]) << 23)); });
  each([&](int k, int e) {
    const float clamped = x[k][e] >= -87.0f ? p[k][e] : 0.0f;
    x[k][e] = x[k][e] == x[k][e] ? clamped : quiet_nan();
  });
}

// R128 over the head's 64 channels of fma(a[p], b[p], acc), for the lane's row g (h = 0) or g + 8
// (h = 1). product(x, e) is the product of element e in columns 8x .. 8x + 7. Every lane of a row
// has the result.
template <class F>
__device__ __forceinline__ float row_tree(int h, F product) {
  float t[8];
#pragma unroll
  for (int x = 0; x < 8; ++x) {
    const float two = add(product(x, 2 * h), product(x, 2 * h + 1));
    t[x] = add(two, __shfl_xor_sync(kAllLanes, two, 1));
  }
#pragma unroll
  for (int off = 4; off > 0; off /= 2) {
#pragma unroll
    for (int x = 0; x < off; ++x) t[x] = add(t[x], t[x + off]);
  }
  return add(add(t[0], __shfl_xor_sync(kAllLanes, t[0], 2)), 0.0f);
}

// ---- Launches -----------------------------------------------------------------------------------
// Launches a block that needs more shared memory than the default limit.
template <class Shared, class Op>
void launch_tiles(CudaQueue queue, dim3 grid, int threads, void (*kernel)(Op), const Op& op) {
  cuda_launch_check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  const LaunchOptions options = {.shared_bytes = sizeof(Shared), .overlaps = true};
  launch(queue, grid, dim3(static_cast<unsigned>(threads)), options, kernel, op);
}

}  // namespace lockstep
