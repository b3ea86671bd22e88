#include "kernels/ops/pack_metadata.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

void place_slots(const PackMetadata& op) {
  const std::int64_t capacity = op.lengths.cols, rows = op.row_document.cols,
                     count = *op.count.data;
  const std::int32_t gaps = faulty("pack-metadata-ignores-gaps", op.gaps, 0);
  std::int32_t next = 0;
  std::int64_t last = -1;
  for (std::int64_t s = 0; s < capacity; ++s) {
    const std::int32_t length = s < count ? op.lengths.data[s] : 0;
    op.cu_seqlens.data[s] = next;
    op.document_start.data[s] = next;
    op.document_length.data[s] = length;
    require(length >= 0, "a document has no negative length");
    if (length > 0) last = s, next += (length + gaps + op.align - 1) / op.align * op.align;
  }
  require(next <= rows, "the slots fit into the pack");
  op.cu_seqlens.data[capacity] = next;
  if (!op.extend_last || last < 0) return;
  std::fill(op.cu_seqlens.data + last + 1, op.cu_seqlens.data + capacity + 1,
            static_cast<std::int32_t>(rows));
}

void describe_rows(const PackMetadata& op) {
  const std::int64_t rows = op.row_document.cols;
  std::fill_n(op.row_document.data, rows, -1);
  std::fill_n(op.row_position.data, rows, 0);
  std::fill_n(op.row_number.data, rows, 0);
  for (std::int64_t s = 0; s < op.lengths.cols; ++s) {
    const std::int32_t start = op.document_start.data[s];
    const std::int32_t before = faulty("pack-metadata-positions-never-restart", 0, start);
    const std::int64_t numbered = faulty("pack-metadata-number-of-first-slot", s, 0);
    for (std::int32_t p = 0; p < op.document_length.data[s]; ++p) {
      op.row_document.data[start + p] = static_cast<std::int32_t>(s);
      op.row_position.data[start + p] = before + p;
      op.row_number.data[start + p] = op.numbers.data[numbered];
    }
  }
}

void cut_chunks(const PackMetadata& op) {
  const std::int64_t max_chunks = op.chunk_document.cols;
  std::fill_n(op.chunk_document.data, max_chunks, -1);
  std::fill_n(op.chunk_start.data, max_chunks, 0);
  std::fill_n(op.chunk_rows.data, max_chunks, 0);
  std::int64_t c = 0;
  for (std::int64_t s = 0; s < op.lengths.cols; ++s) {
    const std::int32_t start = op.document_start.data[s], length = op.document_length.data[s];
    for (std::int32_t p = 0; p < length; p += op.chunk, ++c) {
      op.chunk_document.data[c] = static_cast<std::int32_t>(s);
      op.chunk_start.data[c] = start + p;
      op.chunk_rows.data[c] = std::min(op.chunk, length - p);
    }
  }
}

}  // namespace

void run(HostQueue, const PackMetadata& op) {
  require(*op.count.data >= 0 && *op.count.data <= op.lengths.cols,
          "count is at most the capacity");
  place_slots(op);
  describe_rows(op);
  cut_chunks(op);
}

}  // namespace lockstep
