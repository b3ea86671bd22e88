#include "kernels/core/packed_documents.h"
#include "kernels/cuda/common/element.cuh"
#include "kernels/ops/pack_metadata.h"

namespace lockstep {
namespace {

// Initialises every row and chunk as if there were no documents.
__global__ void clear_tables(PackMetadata op) {
  pdl_begin();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < op.row_document.cols) {
    at(op.row_document, 0, i) = -1;
    at(op.row_position, 0, i) = 0;
    at(op.row_number, 0, i) = 0;
  }
  if (i < op.chunk_document.cols) {
    at(op.chunk_document, 0, i) = -1;
    at(op.chunk_start, 0, i) = 0;
    at(op.chunk_rows, 0, i) = 0;
  }
}

__device__ int chunks_of(std::int32_t length, std::int32_t chunk) {
  return (length + chunk - 1) / chunk;
}

// 256 slots at a time: one thread places them one after the other, then all threads write.
struct Slots {
  std::int32_t length[kThreads];
  std::int32_t tokens_before[kThreads];
  std::int32_t start[kThreads];
  std::int32_t first_chunk[kThreads];
};
struct End {
  std::int32_t tokens = 0;  // Before the next slot.
  std::int32_t row = 0;     // First row of the next slot.
  std::int32_t chunk = 0;   // First chunk of the next slot.
  std::int64_t last = -1;   // The last slot with rows.
};
__device__ void lay(const PackMetadata& op, std::int64_t first, int count, Slots& slots, End& end) {
  for (int x = 0; x < count; ++x) {
    const std::int32_t length = slots.length[x];
    slots.tokens_before[x] = end.tokens;
    slots.start[x] = end.row;
    slots.first_chunk[x] = end.chunk;
    if (length < 0) __trap();
    if (length == 0) continue;
    end.tokens += length;
    end.row += (length + op.gaps + op.align - 1) / op.align * op.align;
    end.chunk += chunks_of(length, op.chunk);
    end.last = first + x;
  }
  if (end.row > op.row_document.cols || end.chunk > op.chunk_document.cols)
    __trap();  // The documents do not fit the pack.
}

__device__ void write_slots(const PackMetadata& op, std::int64_t first, int count,
                            const Slots& slots) {
  for (int x = static_cast<int>(threadIdx.x); x < count; x += kThreads) {
    at(op.cu_seqlens, 0, first + x) = slots.tokens_before[x];
    at(op.cu_seqlens_padded, 0, first + x) = slots.start[x];
  }
  for (int x = 0; x < count; ++x) {
    const int chunks = chunks_of(slots.length[x], op.chunk);
    for (int c = static_cast<int>(threadIdx.x); c < chunks; c += kThreads) {
      const std::int32_t done = c * op.chunk;
      const std::int32_t left = slots.length[x] - done;
      at(op.chunk_document, 0, slots.first_chunk[x] + c) = static_cast<std::int32_t>(first + x);
      at(op.chunk_start, 0, slots.first_chunk[x] + c) = slots.start[x] + done;
      at(op.chunk_rows, 0, slots.first_chunk[x] + c) = left < op.chunk ? left : op.chunk;
    }
  }
}

// One block.
__global__ void __launch_bounds__(kThreads) place_slots(PackMetadata op) {
  pdl_begin();
  __shared__ Slots slots;
  __shared__ std::int64_t extended;  // The first boundary that is T.
  const std::int64_t capacity = op.lengths.cols;
  const std::int64_t used = op.count.data[0];
  End end;
  for (std::int64_t first = 0; first < capacity; first += kThreads) {
    const int count = static_cast<int>(smaller(capacity - first, kThreads));
    const std::int64_t s = first + threadIdx.x;
    slots.length[threadIdx.x] = s < capacity && s < used ? at(op.lengths, 0, s) : 0;
    __syncthreads();
    if (threadIdx.x == 0) lay(op, first, count, slots, end);
    __syncthreads();
    write_slots(op, first, count, slots);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    at(op.cu_seqlens, 0, capacity) = end.tokens;
    at(op.cu_seqlens_padded, 0, capacity) = end.row;
    extended = op.extend_last ? end.last + 1 : used;
  }
  __syncthreads();
  if (extended == 0) return;  // No slot takes the rows behind the documents.
  for (std::int64_t s = extended + threadIdx.x; s <= capacity; s += kThreads) {
    at(op.cu_seqlens_padded, 0, s) = static_cast<std::int32_t>(op.row_document.cols);
  }
}

// One block per slot.
__global__ void describe_rows(PackMetadata op) {
  pdl_begin();
  const std::int64_t s = blockIdx.x;
  const std::int64_t start = first_row_of(op, s);
  const std::int32_t length = tokens_of(op, s);
  for (std::int32_t p = static_cast<std::int32_t>(threadIdx.x); p < length; p += kThreads) {
    at(op.row_document, 0, start + p) = static_cast<std::int32_t>(s);
    at(op.row_position, 0, start + p) = p;
    at(op.row_number, 0, start + p) = at(op.numbers, 0, s);
  }
}

}  // namespace

void run(CudaQueue queue, const PackMetadata& op) {
  const std::int64_t rows = op.row_document.cols;
  const std::int64_t chunks = op.chunk_document.cols;
  launch(queue, dim3(blocks_for(rows > chunks ? rows : chunks, kThreads)), dim3(kThreads), kPdl,
         clear_tables, op);
  launch(queue, dim3(1), dim3(kThreads), kPdl, place_slots, op);
  launch(queue, dim3(static_cast<unsigned>(op.lengths.cols)), dim3(kThreads), kPdl, describe_rows,
         op);
}

}  // namespace lockstep
