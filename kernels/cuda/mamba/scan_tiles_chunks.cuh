// The chunks of a pack in tiles: their decays, and the order of a document's chunks.
#pragma once

#include <algorithm>

#include "kernels/core/packed_documents.h"
#include "kernels/cuda/mamba/scan_tiles.cuh"

namespace lockstep {

inline constexpr int kDecayThreads = kTileRows;

// The table has room for a chunk more for each document that the capacity allows, and a block
// without a chunk takes its time too. So grids have blocks for the chunks that the rows need and
// for a few documents, whatever the capacity; with more documents a block takes several chunks.
inline constexpr std::int64_t kDocumentsInGrid = 16;
template <class Op>
unsigned chunks_in_grid(const Op& op) {
  const std::int64_t of_rows = blocks_for(op.row_document.cols, op.chunk);
  return static_cast<unsigned>(std::min(op.chunk_document.cols, of_rows + kDocumentsInGrid));
}
// Calls work(chunk) for the chunks of a block whose grid's x axis is chunks_in_grid().
template <class Op, class Work>
__device__ __forceinline__ void each_chunk(const Op& op, const Work& work) {
  for (std::int64_t index = blockIdx.x; index < op.chunk_document.cols; index += gridDim.x) {
    const Chunk chunk = chunk_at(op, index);
    if (chunk.rows == 0) return;  // So have all behind it.
    work(chunk);
    __syncthreads();  // The next chunk takes the shared memory.
  }
}

// Computes dt and cs of the chunk's rows into `decay`, one row per thread.
template <class Op>
__device__ __forceinline__ void find_decays(TileDecay& decay, const Op& op, const Chunk& chunk,
                                            int head) {
  const int own = static_cast<int>(threadIdx.x);
  decay.dt[own] = own < chunk.rows ? softplus(raw_dt(op, chunk.start + own, head)) : 0.0f;
  __syncthreads();
  if (own == 0) {
    constexpr int kAtOnce = 16;
    const float rate = rate_of(op, head);
    float c = 0.0f;
    for (int j0 = 0; j0 < kTileRows; j0 += kAtOnce) {
      float dt[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) dt[j] = decay.dt[j0 + j];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        c = fma(dt[j], rate, c);
        decay.cs[j0 + j] = c;
      }
    }
  }
  __syncthreads();
}
template <class Op>
__device__ __forceinline__ void keep_decays(const TileDecay& decay, const Op& op,
                                            const Chunk& chunk, int head) {
  const int own = static_cast<int>(threadIdx.x);
  if (own >= chunk.rows) return;
  dt_place(op, chunk, head, own) = decay.dt[own];
  cs_place(op, chunk, head, own) = decay.cs[own];
}
// Writes +0 to the rows of no document; the warps of all blocks share them.
template <class Op, class T>
__device__ __forceinline__ void clear_unowned(const Op& op, const Out<T>& out) {
  const std::int64_t block =
      blockIdx.x + gridDim.x * (blockIdx.y + static_cast<std::int64_t>(gridDim.y) * blockIdx.z);
  const std::int64_t warps = blockDim.x / kWarp;
  const std::int64_t all = warps * gridDim.x * gridDim.y * gridDim.z;
  for (std::int64_t row = block * warps + warp_index(); row < out.rows; row += all) {
    if (at(op.row_document, 0, row) >= 0) continue;
    for (std::int64_t e = lane_index(); e < out.cols; e += kWarp) at(out, row, e) = st<T>(0.0f);
  }
}
__device__ __forceinline__ void clear_results(const ScanForward<bf16>& op) {
  clear_unowned(op, op.y);
}
__device__ __forceinline__ void clear_results(const ScanBackward<bf16>& op) {
  clear_unowned(op, op.dxbc);
  clear_unowned(op, op.ddt);
}
// Grid: (chunk, head).
template <class Op>
__global__ void __launch_bounds__(kDecayThreads) tile_decays(Op op) {
  pdl_begin();
  __shared__ TileDecay decay;
  clear_results(op);
  each_chunk(op, [&](const Chunk& chunk) {
    const int head = static_cast<int>(blockIdx.y);
    find_decays(decay, op, chunk, head);
    keep_decays(decay, op, chunk, head);
  });
}
// right[j] = st(mul(right[j], factor)), one row per thread.
__device__ __forceinline__ void scale_row(RowsByHead& right, float factor) {
#pragma unroll
  for (int k = 0; k < kTileHead; k += 8) {
    Vec8& eight = *reinterpret_cast<Vec8*>(&right.row[threadIdx.x][k]);
#pragma unroll
    for (std::uint32_t& pair : eight.pairs) pair = scaled_pair(pair, factor);
  }
}

// The chunks of a document, which are consecutive, so that a walk reads no table.
struct ChunkedDocument {
  std::int64_t first;  // Number of its first chunk.
  int chunks;          // 0: the chunk begins no document.
  std::int64_t start;
  int length;
  int chunk;

  template <class Op>
  __device__ __forceinline__ ChunkedDocument(const Op& op, std::int64_t index)
      : first(index), chunks(0), chunk(op.chunk) {
    const std::int32_t document = at(op.chunk_document, 0, index);
    if (document < 0) return;
    start = first_row_of(op, document);
    length = tokens_of(op, document);
    if (at(op.chunk_start, 0, index) == start) chunks = (length + chunk - 1) / chunk;
  }
  __device__ __forceinline__ Chunk operator[](int c) const {
    return {first + c, start + static_cast<std::int64_t>(c) * chunk,
            static_cast<int>(smaller(chunk, length - static_cast<std::int64_t>(c) * chunk))};
  }
};

// The grid of kernels that walk: every head of chunk 0, then of chunk 1, and so on; a block works
// if its chunk is the first of a document. Only the x axis is used, since a pack of 1,048,576 rows
// has more chunks than the other axes hold (65,535).
template <class Op>
dim3 walk_grid(const Op& op) {
  return dim3(static_cast<unsigned>(op.heads) * chunks_in_grid(op));
}
// Calls walk(document, head) for the documents of a block.
template <class Op, class Walk>
__device__ __forceinline__ void each_document(const Op& op, const Walk& walk) {
  const auto heads = static_cast<unsigned>(op.heads);
  const int head = static_cast<int>(blockIdx.x % heads);
  for (std::int64_t index = blockIdx.x / heads; index < op.chunk_document.cols;
       index += gridDim.x / heads) {
    if (at(op.chunk_document, 0, index) < 0) return;  // So is it of all behind it.
    const ChunkedDocument document(op, index);
    if (document.chunks == 0) continue;
    walk(document, head);
  }
}

}  // namespace lockstep
