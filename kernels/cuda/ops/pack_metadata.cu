#include "kernels/core/packed_documents.h"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {
namespace {

__device__ int chunks_of(std::int32_t length, std::int32_t chunk) {
  return (length + chunk - 1) / chunk;
}

// The tokens, rows and chunks of a slot, or of several slots together.
struct Taken {
  std::int32_t tokens = 0;
  std::int32_t rows = 0;
  std::int32_t chunks = 0;

  __device__ void add(const Taken& other) {
    tokens += other.tokens;
    rows += other.rows;
    chunks += other.chunks;
  }
};
__device__ Taken taken_by(const PackMetadata& op, std::int32_t length) {
  if (length < 0) __trap();
  if (length == 0) return {};
  return {length, (length + op.gaps + op.align - 1) / op.align * op.align,
          chunks_of(length, op.chunk)};
}

// 256 slots at a time, one a thread.
struct Slots {
  std::int32_t length[kThreads];
  std::int32_t row[kThreads];    // Their first rows, ascending.
  std::int32_t chunk[kThreads];  // Their first chunks, ascending.
  Taken of_warp[kWarps];
};

// Places the thread's slot behind the slots before it, and moves `end` behind all 256. Returns what
// is before the slot.
__device__ Taken place(Slots& slots, std::int32_t length, const Taken& own, Taken& end) {
  Taken sum = own;  // The sum up to this lane.
#pragma unroll
  for (int off = 1; off < kWarp; off *= 2) {
    const Taken before = {__shfl_up_sync(kAllLanes, sum.tokens, off),
                          __shfl_up_sync(kAllLanes, sum.rows, off),
                          __shfl_up_sync(kAllLanes, sum.chunks, off)};
    if (lane_index() >= off) sum.add(before);
  }
  __syncthreads();  // The slots before have been used.
  if (lane_index() == kWarp - 1) slots.of_warp[warp_index()] = sum;
  __syncthreads();
  Taken before = end;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp_index()) before.add(slots.of_warp[w]);
    end.add(slots.of_warp[w]);
  }
  before.add({sum.tokens - own.tokens, sum.rows - own.rows, sum.chunks - own.chunks});
  slots.length[threadIdx.x] = length;
  slots.row[threadIdx.x] = before.rows;
  slots.chunk[threadIdx.x] = before.chunks;
  __syncthreads();
  return before;
}

// The last slot that begins at `index` or before it, of which the first one does. Empty slots begin
// where the next one does, so that it is not empty if any slot has the index.
__device__ int slot_at(const std::int32_t (&begins)[kThreads], std::int64_t index) {
  int slot = 0;
#pragma unroll
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (begins[slot + step] <= index) slot += step;
  }
  return slot;
}

// A thread for each row and each chunk. Every block places all slots by itself: that takes less
// time than a kernel before this one. The first block writes the boundaries.
__global__ void __launch_bounds__(kThreads) pack_metadata(PackMetadata op) {
  pdl_begin();
  __shared__ Slots slots;
  __shared__ int last;  // The last slot that is not empty, in the first block.
  const std::int64_t capacity = op.lengths.cols;
  const std::int64_t used = op.count.data[0];
  const std::int64_t own = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool is_first = blockIdx.x == 0;
  if (threadIdx.x == 0) last = -1;
  std::int32_t document = -1, position = 0;
  std::int32_t of_chunk = -1, start = 0, rows = 0;
  Taken end;
  for (std::int64_t first = 0; first < capacity; first += kThreads) {
    const std::int64_t s = first + threadIdx.x;
    const std::int32_t length = s < capacity && s < used ? at(op.lengths, 0, s) : 0;
    const Taken begin = end;
    const Taken before = place(slots, length, taken_by(op, length), end);
    if (end.rows > op.row_document.cols || end.chunks > op.chunk_document.cols)
      __trap();  // The documents do not fit the pack.
    if (is_first && s < capacity) {
      at(op.cu_seqlens, 0, s) = before.tokens;
      at(op.cu_seqlens_padded, 0, s) = before.rows;
      if (length > 0) atomicMax(&last, static_cast<int>(s));
    }
    if (begin.rows <= own && own < end.rows) {
      const int slot = slot_at(slots.row, own);
      position = static_cast<std::int32_t>(own) - slots.row[slot];
      document = position < slots.length[slot] ? static_cast<std::int32_t>(first) + slot : -1;
    }
    if (begin.chunks <= own && own < end.chunks) {
      const int slot = slot_at(slots.chunk, own);
      const std::int32_t done = (static_cast<std::int32_t>(own) - slots.chunk[slot]) * op.chunk;
      const std::int32_t left = slots.length[slot] - done;
      of_chunk = static_cast<std::int32_t>(first) + slot;
      start = slots.row[slot] + done;
      rows = left < op.chunk ? left : op.chunk;
    }
  }
  if (own < op.row_document.cols) {
    at(op.row_document, 0, own) = document;
    at(op.row_position, 0, own) = document < 0 ? 0 : position;
    at(op.row_number, 0, own) = document < 0 ? 0 : at(op.numbers, 0, document);
  }
  if (own < op.chunk_document.cols) {
    at(op.chunk_document, 0, own) = of_chunk;
    at(op.chunk_start, 0, own) = start;
    at(op.chunk_rows, 0, own) = rows;
  }
  if (!is_first) return;
  if (threadIdx.x == 0) {
    at(op.cu_seqlens, 0, capacity) = end.tokens;
    at(op.cu_seqlens_padded, 0, capacity) = end.rows;
  }
  __syncthreads();  // All boundaries are written, and the last slot is known.
  const std::int64_t extended = op.extend_last ? last + 1 : used;  // The first boundary that is T.
  if (extended == 0) return;  // No slot takes the rows behind the documents.
  for (std::int64_t s = extended + threadIdx.x; s <= capacity; s += kThreads) {
    at(op.cu_seqlens_padded, 0, s) = static_cast<std::int32_t>(op.row_document.cols);
  }
}

}  // namespace

void run(CudaQueue queue, const PackMetadata& op) {
  const std::int64_t rows = op.row_document.cols;
  const std::int64_t chunks = op.chunk_document.cols;
  launch(queue, dim3(blocks_for(rows > chunks ? rows : chunks, kThreads)), dim3(kThreads), kPdl,
         pack_metadata, op);
}

}  // namespace lockstep
