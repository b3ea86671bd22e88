// The bf16 scan for the common sizes: heads of 64 channels, a state of 128, chunks of at most 128
// rows. Other sizes take scan_bf16.cuh.
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

template <class Op>
bool has_tile_sizes(const Op& op) {
  return host_head_rows(op) == kTileHead && op.state == kTileState && op.chunk <= kTileRows &&
         is_vectorizable(op.xbc) && is_vectorizable(op.states);
}
inline bool runs_in_tiles(const ScanForward<bf16>& op) {
  return has_tile_sizes(op) && is_vectorizable(op.y);
}
// The decays of a chunk take its rows of `rows` as one piece, which must have no gaps.
inline bool runs_in_tiles(const ScanBackward<bf16>& op) {
  return has_tile_sizes(op) && is_vectorizable(op.dy) && is_vectorizable(op.dxbc) &&
         is_vectorizable(op.dstates) && op.rows.pitch == op.rows.cols;
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
// A chunk's rows of `rows` hold each head's dt, then its cs, for one head after the other.
__device__ __forceinline__ float* decays_of(const ScanBackward<bf16>& op, const Chunk& chunk,
                                            int head) {
  return op.rows.data + chunk.start * op.rows.pitch + 2ll * head * chunk.rows;
}
__device__ __forceinline__ float& dt_place(const ScanBackward<bf16>& op, const Chunk& chunk,
                                           int head, int j) {
  return decays_of(op, chunk, head)[j];
}
__device__ __forceinline__ float& cs_place(const ScanBackward<bf16>& op, const Chunk& chunk,
                                           int head, int j) {
  return decays_of(op, chunk, head)[chunk.rows + j];
}
enum RowSum : int { kSumG = 0, kSumH = 1, kSumQ = 2, kSumD = 3, kRowSumKinds = 4 };

// A head's part of `states` in the backward pass once dS is known: offsets in fp32 elements.
struct ScratchLayout {
  static constexpr int kStateSumPitch = exact_place(2, 0);  // Warp w's sum lies in its own rows.
  static constexpr int kStateSums = 0;                      // v_w of ss, by each of the warps.
  static constexpr int kRowSums = kWarps * kStateSumPitch;  // [kRowSumKinds][kTileRows]
  // KKb of the group, in the part of its first head: blocks of 8 x 8.
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

  __device__ __forceinline__ float end() const { return cs[kTileRows - 1]; }                // csL
  __device__ __forceinline__ float to_end(int j) const { return expn(sub(end(), cs[j])); }  // r_j
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
// expn of the four numbers of each half from kFirst to kLast where they are from -87 to 87; for
// smaller ones and NaN, clamp_expn() corrects the result. Larger ones belong to pairs that
// clear_other_side() makes +0. The eight numbers advance together, step by step: left to itself,
// the assembler saves registers and computes one after the other.
template <int kFirst = 0, int kLast = 1>
__device__ __forceinline__ void expn_of_halves(float (&x)[2][4]) {
  float t[2][4];
  float p[2][4];
  const auto each = [](auto step) {
#pragma unroll
    for (int h = kFirst; h <= kLast; ++h) {
#pragma unroll
      for (int e = 0; e < 4; ++e) step(h, e);
    }
  };
  each([&](int h, int e) { t[h][e] = fma(x[h][e], kLog2E, kRound); });
  each([&](int h, int e) { p[h][e] = exp_remainder(x[h][e], t[h][e]); });
  each([&](int h, int e) { p[h][e] = exp_poly(p[h][e]); });
  each([&](int h, int e) { x[h][e] = from_bits(bits(p[h][e]) + (bits(t[h][e]) << 23)); });
}
// expn(x) from what expn_of_halves() made of x.
__device__ __forceinline__ float clamp_expn(float x, float made) {
  const float clamped = x >= -87.0f ? made : 0.0f;
  return x == x ? clamped : quiet_nan();
}
// Whether no later row's cs minus an earlier one's needs clamp_expn(), which holds where the whole
// chunk decays to e^-87 or more: cs does not rise along a chunk and rows past its end have csL, so
// the last row minus the first is the least difference, also as it is rounded. A NaN in cs makes
// all cs behind it NaN and so this comparison false; two infinite ends differ by NaN as well.
__device__ __forceinline__ bool decays_little(const float (&cs)[kTileRows]) {
  return sub(cs[kTileRows - 1], cs[0]) >= -87.0f;
}

// R128 over the head's 64 channels of fma(a[p], b[p], acc), for the lane's row g if its place is
// even, otherwise g + 8: neighbours give each other their part of one row. product(x, e) is the
// product of element e in columns 8x .. 8x + 7.
template <class F>
__device__ __forceinline__ float row_tree(F product) {
  const bool is_odd = lane_place() % 2 != 0;
  float t[8];
#pragma unroll
  for (int x = 0; x < 8; ++x) {
    const float upper = add(product(x, 0), product(x, 1));
    const float lower = add(product(x, 2), product(x, 3));
    t[x] = add(is_odd ? lower : upper, __shfl_xor_sync(kAllLanes, is_odd ? upper : lower, 1));
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
