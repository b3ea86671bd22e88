#include "kernels/ops/pack_metadata.h"

#include "kernels/core/shape.h"

namespace lockstep {

void check(const PackMetadata& op) {
  const auto capacity = op.lengths.cols, rows = op.row_document.cols,
             chunks = op.chunk_document.cols;
  require(op.gaps >= 0 && op.align > 0 && op.chunk > 0, "gaps >= 0, align > 0, chunk > 0");
  require_shape(op.lengths, 1, capacity, "lengths is [1, capacity]");
  require_shape(op.numbers, 1, capacity, "numbers is [1, capacity]");
  require_shape(op.count, 1, 1, "count is [1, 1]");
  require_shape(op.cu_seqlens, 1, capacity + 1, "cu_seqlens is [1, capacity + 1]");
  require_shape(op.cu_seqlens_padded, 1, capacity + 1, "cu_seqlens_padded is [1, capacity + 1]");
  require_shape(op.row_document, 1, rows, "row_document is [1, T]");
  require_shape(op.row_position, 1, rows, "row_position is [1, T]");
  require_shape(op.row_number, 1, rows, "row_number is [1, T]");
  require_shape(op.chunk_document, 1, chunks, "chunk_document is [1, max_chunks]");
  require_shape(op.chunk_start, 1, chunks, "chunk_start is [1, max_chunks]");
  require_shape(op.chunk_rows, 1, chunks, "chunk_rows is [1, max_chunks]");
  require(chunks >= (rows + op.chunk - 1) / op.chunk + capacity,
          "max_chunks >= ceil(T / chunk) + capacity");
}

}  // namespace lockstep
