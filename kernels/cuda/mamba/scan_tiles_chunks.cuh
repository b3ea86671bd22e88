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

// The chain cs over a head's dt, by one thread.
__device__ __forceinline__ void chain_decays(float* cs, const float* dt, float rate) {
  constexpr int kAtOnce = 16;
  float c = 0.0f;
  for (int j0 = 0; j0 < kTileRows; j0 += kAtOnce) {
    float some[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) some[j] = dt[j0 + j];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      c = fma(some[j], rate, c);
      cs[j0 + j] = c;
    }
  }
}
// Computes dt and cs of the chunk's rows into `decay`, one row per thread.
template <class Op>
__device__ __forceinline__ void find_decays(TileDecay& decay, const Op& op, const Chunk& chunk,
                                            int head) {
  const int own = static_cast<int>(threadIdx.x);
  decay.dt[own] = own < chunk.rows ? softplus(raw_dt(op, chunk.start + own, head)) : 0.0f;
  __syncthreads();
  if (own == 0) chain_decays(decay.cs, decay.dt, rate_of(op, head));
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
// dt and cs of eight heads, by the whole block. Grid: (chunk, set of eight heads).
inline constexpr int kDecayHeads = 8;
template <class Op>
__global__ void __launch_bounds__(kThreads) tile_decays(Op op) {
  pdl_begin();
  __shared__ float dt[kDecayHeads][kTileRows + 1];
  __shared__ float cs[kDecayHeads][kTileRows + 1];
  clear_results(op);
  each_chunk(op, [&](const Chunk& chunk) {
    const int first = static_cast<int>(blockIdx.y) * kDecayHeads;
    const int heads = static_cast<int>(smaller(kDecayHeads, op.heads - first));
    for (int e = static_cast<int>(threadIdx.x); e < kTileRows * kDecayHeads; e += kThreads) {
      const int h = e % kDecayHeads;
      const int j = e / kDecayHeads;
      if (h < heads && j < chunk.rows) dt[h][j] = softplus(raw_dt(op, chunk.start + j, first + h));
    }
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    if (own < heads) chain_decays(cs[own], dt[own], rate_of(op, first + own));
    __syncthreads();
    for (int e = own; e < kTileRows * heads; e += kThreads) {
      const int h = e / kTileRows;
      const int j = e % kTileRows;
      if (j >= chunk.rows) continue;
      dt_place(op, chunk, first + h, j) = dt[h][j];
      cs_place(op, chunk, first + h, j) = cs[h][j];
    }
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
  int chunks;          // 0: there is no document.
  std::int64_t start;
  int length;
  int chunk;

  template <class Op>
  __device__ __forceinline__ ChunkedDocument(const Op& op, std::int64_t slot, std::int64_t first)
      : first(first), start(first_row_of(op, slot)), length(tokens_of(op, slot)), chunk(op.chunk) {
    chunks = (length + chunk - 1) / chunk;
  }
  __device__ __forceinline__ Chunk operator[](int c) const {
    return {first + c, start + static_cast<std::int64_t>(c) * chunk,
            static_cast<int>(smaller(chunk, length - static_cast<std::int64_t>(c) * chunk))};
  }
};
template <class Op>
__device__ __forceinline__ int document_slots(const Op& op) {
  return static_cast<int>(op.cu_seqlens.cols) - 1;
}
// The number of the first chunk of the document or one behind it.
template <class Op>
__device__ __forceinline__ std::int64_t first_chunk_from(const Op& op, int slot) {
  std::int64_t begin = 0;
  std::int64_t end = op.chunk_document.cols;
  while (begin < end) {
    const std::int64_t middle = (begin + end) / 2;
    const std::int32_t document = at(op.chunk_document, 0, middle);
    if (document < 0 || document >= slot) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

// The grid of kernels that walk: every head of a document, then of the next one; with more
// documents a block takes several. Only the x axis is used.
template <class Op>
dim3 walk_grid(const Op& op) {
  const std::int64_t documents = std::min(op.cu_seqlens.cols - 1, kDocumentsInGrid);
  return dim3(static_cast<unsigned>(op.heads * documents));
}
// The order in which blocks take documents: the longest first, so that no long walk begins when
// most others have ended. A whole block of 256 threads picks one.
struct DocumentOrder {
  static constexpr int kMost = kThreads;  // With more slots, documents are taken as they come.
  int chunks[kMost];
  int picked;
  int first;

  // The document of rank `rank`, for every thread; a document of 0 chunks if there are not so many.
  template <class Op>
  __device__ __forceinline__ void pick(const Op& op, int rank) {
    const int own = static_cast<int>(threadIdx.x);
    const int slots = document_slots(op);
    const int mine = own < slots ? (tokens_of(op, own) + op.chunk - 1) / op.chunk : 0;
    chunks[own] = mine;
    if (own == 0) picked = -1;
    __syncthreads();
    if (mine != 0) {
      int before = 0;
      int place = 0;
      for (int slot = 0; slot < slots; ++slot) {
        const int other = chunks[slot];
        if (slot < own) before += other;
        if (other > mine || (other == mine && slot < own)) ++place;
      }
      if (place == rank) {
        picked = own;
        first = before;
      }
    }
    __syncthreads();
  }
};
// Calls walk(document, head) for the documents of a block, by all its threads.
template <class Op, class Walk>
__device__ __forceinline__ void each_document(DocumentOrder& order, const Op& op,
                                              const Walk& walk) {
  const auto heads = static_cast<unsigned>(op.heads);
  const int head = static_cast<int>(blockIdx.x % heads);
  const int stride = static_cast<int>(gridDim.x / heads);
  const int slots = document_slots(op);
  if (slots <= DocumentOrder::kMost) {
    for (int rank = static_cast<int>(blockIdx.x / heads);; rank += stride) {
      order.pick(op, rank);
      if (order.picked < 0) return;
      const ChunkedDocument document(op, order.picked, order.first);
      __syncthreads();  // All threads know it.
      walk(document, head);
    }
  }
  const std::int32_t all = op.cu_seqlens.data[slots];
  for (int slot = static_cast<int>(blockIdx.x / heads); slot < slots; slot += stride) {
    if (op.cu_seqlens.data[slot] == all) return;  // The slots behind it are empty, too.
    if (tokens_of(op, slot) == 0) continue;
    walk(ChunkedDocument(op, slot, first_chunk_from(op, slot)), head);
  }
}

}  // namespace lockstep
