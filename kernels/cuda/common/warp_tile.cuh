// Tiles of bf16 in shared memory, loads of tensor core operands from them (ldmatrix, four 8 x 8
// blocks at a time), asynchronous copies into them, and stores of rows of results.
#pragma once

#include "kernels/cuda/common/barrier.cuh"
#include "kernels/cuda/common/fragment.cuh"

namespace lockstep {

// Rows are padded by 8 elements, so that neighbours begin 16 bytes apart in the banks.
template <int kRows, int kColumns>
struct SharedTile {
  static constexpr int kPitch = kColumns + 8;
  alignas(16) bf16 row[kRows][kPitch];

  __device__ __forceinline__ const bf16* at(int i, int k) const { return &row[i][k]; }
  __device__ __forceinline__ std::uint32_t pair_at(int i, int k) const {
    return *reinterpret_cast<const std::uint32_t*>(&row[i][k]);
  }
};

// Lanes 8q .. 8q + 7 give the rows of block q; lane (g, t) receives columns 2t, 2t + 1 of row g of
// each block.
__device__ __forceinline__ void take_blocks(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t& r2,
                                            std::uint32_t& r3, const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(shared_address(row))
               : "memory");
}
// The same for the transposed blocks: rows 2t, 2t + 1 of column g.
__device__ __forceinline__ void take_blocks_across(std::uint32_t& r0, std::uint32_t& r1,
                                                   std::uint32_t& r2, std::uint32_t& r3,
                                                   const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(shared_address(row))
               : "memory");
}

// The left factor m0 .. m0 + 15, k0 .. k0 + 15 of a tile whose rows run along k, or across it.
template <class Tile>
__device__ __forceinline__ void left_along(std::uint32_t (&a)[4], const Tile& tile, int m0,
                                           int k0) {
  const int q = lane_index() / 8;
  take_blocks(a[0], a[1], a[2], a[3], tile.at(m0 + q % 2 * 8 + lane_index() % 8, k0 + q / 2 * 8));
}
template <class Tile>
__device__ __forceinline__ void left_across(std::uint32_t (&a)[4], const Tile& tile, int m0,
                                            int k0) {
  const int q = lane_index() / 8;
  take_blocks_across(a[0], a[1], a[2], a[3],
                     tile.at(k0 + q / 2 * 8 + lane_index() % 8, m0 + q % 2 * 8));
}
// The right factor n0 .. n0 + 15, k0 .. k0 + 15: two operands, b[n / 8].
template <class Tile>
__device__ __forceinline__ void right_along(std::uint32_t (&b)[2][2], const Tile& tile, int n0,
                                            int k0) {
  const int q = lane_index() / 8;
  take_blocks(b[0][0], b[0][1], b[1][0], b[1][1],
              tile.at(n0 + q / 2 * 8 + lane_index() % 8, k0 + q % 2 * 8));
}
template <class Tile>
__device__ __forceinline__ void right_across(std::uint32_t (&b)[2][2], const Tile& tile, int n0,
                                             int k0) {
  const int q = lane_index() / 8;
  take_blocks_across(b[0][0], b[0][1], b[1][0], b[1][1],
                     tile.at(k0 + q % 2 * 8 + lane_index() % 8, n0 + q / 2 * 8));
}

// Starts copies of `rows` rows from global memory, by the whole block. The other rows become +0,
// without being read.
template <int kRows, int kColumns>
__device__ __forceinline__ void start_copy(SharedTile<kRows, kColumns>& to, const bf16* from,
                                           std::int64_t pitch, int rows) {
  constexpr int kPieces = kColumns / 8;
  for (int e = static_cast<int>(threadIdx.x); e < kRows * kPieces;
       e += static_cast<int>(blockDim.x)) {
    const int i = e / kPieces;
    const int k = e % kPieces * 8;
    const bool inside = i < rows;
    copy_16(shared_address(&to.row[i][k]), from + (inside ? i : 0) * pitch + k, inside);
  }
}
// Starts a copy of 4 bytes; if not `inside`, it writes +0 and reads nothing.
__device__ __forceinline__ void start_copy_4(void* to, const void* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ float low_of(std::uint32_t pair) { return from_bits(pair << 16); }
__device__ __forceinline__ float high_of(std::uint32_t pair) {
  return from_bits(pair & 0xffff0000u);
}
// st(mul(x, scale)) of both.
__device__ __forceinline__ std::uint32_t scaled_pair(std::uint32_t pair, float scale) {
  return stored_pair(mul(low_of(pair), scale), mul(high_of(pair), scale));
}

// Sixteen rows of 64 results of a warp, stored as whole rows, of which the first `rows` exist.
// value(x, e) is element e of the lane in columns 8x .. 8x + 7.
using WarpRows = SharedTile<16, 64>;
template <class F>
__device__ __forceinline__ void store_rows(WarpRows& stage, bf16* to, std::int64_t pitch, int rows,
                                           F value) {
#pragma unroll
  for (int x = 0; x < 8; ++x) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      *reinterpret_cast<std::uint32_t*>(
          &stage.row[lane_group() + 8 * h][8 * x + 2 * lane_place()]) =
          stored_pair(value(x, 2 * h), value(x, 2 * h + 1));
    }
  }
  __syncwarp();
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int e = lane_index() + kWarp * part;
    const int i = e / 8;
    const int k = e % 8 * 8;
    if (i < rows)
      *reinterpret_cast<Vec8*>(to + i * pitch + k) =
          *reinterpret_cast<const Vec8*>(&stage.row[i][k]);
  }
  __syncwarp();
}

}  // namespace lockstep
