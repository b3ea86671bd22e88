// Builds everything the kernels know about a pack from the lengths of its documents, on the device.
#pragma once

#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// Capacity = lengths.cols. Slot s holds document s: its slot rows are length + gaps rounded up to
// `align`, 0 when it is empty. Slots at and after count[0] are empty: their boundaries repeat the
// last one. Rows between the documents, and after the last, belong to no document: row_document =
// -1, row_position = 0. The tables by row and by chunk are derived from the two arrays of
// boundaries.
struct PackMetadata {
  static constexpr const char* kName = "pack_metadata";
  In<std::int32_t> lengths;      // [1, capacity] tokens; entries at and after count[0] are ignored.
  In<std::int32_t> numbers;      // [1, capacity] document numbers in the step.
  In<std::int32_t> count;        // [1, 1] slots in use.
  Out<std::int32_t> cu_seqlens;  // [1, capacity + 1] tokens before each slot.
  Out<std::int32_t> cu_seqlens_padded;  // [1, capacity + 1] rows before each slot.
  Out<std::int32_t> row_document;       // [1, T] slot of the row's document, -1 for none (seq_idx).
  Out<std::int32_t> row_position;       // [1, T] position in the document.
  Out<std::int32_t> row_number;         // [1, T] document number in the step, 0 for none.
  Out<std::int32_t>
      chunk_document;  // [1, max_chunks] slot of the chunk's document, asc; -1 past the last chunk.
  Out<std::int32_t> chunk_start;  // [1, max_chunks] first row of the chunk; 0 past the last chunk.
  Out<std::int32_t>
      chunk_rows;  // [1, max_chunks] rows of the chunk, at most `chunk`; 0 past the last.
  std::int32_t gaps = 0;
  std::int32_t align = 1;
  std::int32_t chunk = 128;  // Chunk length of the scan.
  // What the rows behind the last document are in cu_seqlens_padded; they belong to no document.
  // true: part of the last slot that is not empty, if any. false: an empty slot, the last of
  // count[0], whose boundary is T.
  bool extend_last = false;
};
// max_chunks must be at least ceil(T / chunk) + capacity.
void check(const PackMetadata& op);
void run(HostQueue, const PackMetadata& op);
void run(CudaQueue, const PackMetadata& op);

}  // namespace lockstep
