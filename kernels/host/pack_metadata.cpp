#include "kernels/ops/pack_metadata.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/core/packed_documents.h"
#include "kernels/core/require.h"

namespace lockstep {
namespace {

// Writes the entries up to that behind the last slot in use. Returns the last slot that is not
// empty, -1 if there is none.
std::int64_t place_slots(const PackMetadata& op, std::int64_t count) {
  const std::int32_t gaps = faulty("pack-metadata-ignores-gaps", op.gaps, 0);
  std::int32_t tokens = 0, next = 0;
  std::int64_t last = -1;
  op.cu_seqlens.data[0] = op.cu_seqlens_padded.data[0] = 0;
  for (std::int64_t s = 0; s < count; ++s) {
    const std::int32_t length = op.lengths.data[s];
    require(length >= 0, "a document has no negative length");
    if (length > 0) {
      last = s, tokens += length, next += (length + gaps + op.align - 1) / op.align * op.align;
    }
    op.cu_seqlens.data[s + 1] = tokens;
    op.cu_seqlens_padded.data[s + 1] = next;
  }
  require(next <= op.row_document.cols, "the slots fit into the pack");
  return last;
}

// Unused slots are empty: their entries repeat the last.
void empty_unused_slots(const PackMetadata& op, std::int64_t count) {
  const std::int32_t tokens = op.cu_seqlens.data[count], next = op.cu_seqlens_padded.data[count];
  for (std::int64_t s = count + 1; s <= op.lengths.cols; ++s) {
    op.cu_seqlens.data[s] = faulty("cu-seqlens-tail-is-zero", tokens, 0);
    op.cu_seqlens_padded.data[s] = next;
  }
}

// The rows behind the documents go to the last slot that is not empty, or to the dummy slot, which
// is the last in use.
void extend_to_the_end(const PackMetadata& op, std::int64_t count, std::int64_t last) {
  const std::int64_t first = op.extend_last ? last + 1 : count, end = op.lengths.cols + 1;
  if (first == 0) return;  // No slot takes them.
  const std::int64_t from = faulty("padded-boundaries-end-with-the-documents", first, end);
  std::fill(op.cu_seqlens_padded.data + from, op.cu_seqlens_padded.data + end,
            static_cast<std::int32_t>(op.row_document.cols));
}

std::int32_t number_of(const PackMetadata& op, std::int64_t slot) {
  return op.numbers.data[faulty("pack-metadata-number-of-first-slot", slot, 0)];
}

void describe_rows(const PackMetadata& op) {
  const std::int64_t rows = op.row_document.cols;
  const std::int32_t of_no_document = faulty("tail-is-of-the-first-document", -1, 0);
  std::fill_n(op.row_document.data, rows, of_no_document);
  std::fill_n(op.row_position.data, rows, 0);
  std::fill_n(op.row_number.data, rows, 0);
  for (std::int64_t s = 0; s < op.lengths.cols; ++s) {
    const std::int32_t start = first_row_of(op, s);
    const std::int32_t before = faulty("pack-metadata-positions-never-restart", 0, start);
    for (std::int32_t p = 0; p < tokens_of(op, s); ++p) {
      op.row_document.data[start + p] = static_cast<std::int32_t>(s);
      op.row_position.data[start + p] = before + p;
      op.row_number.data[start + p] = number_of(op, s);
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
    const std::int32_t start = first_row_of(op, s), length = tokens_of(op, s);
    for (std::int32_t p = 0; p < length; p += op.chunk, ++c) {
      op.chunk_document.data[c] = static_cast<std::int32_t>(s);
      op.chunk_start.data[c] = start + p;
      op.chunk_rows.data[c] = std::min(op.chunk, length - p);
    }
  }
}

}  // namespace

void run(HostQueue, const PackMetadata& op) {
  const std::int64_t count = *op.count.data;
  require(count >= 0 && count <= op.lengths.cols, "count is at most the capacity");
  const std::int64_t last = place_slots(op, count);
  empty_unused_slots(op, count);
  extend_to_the_end(op, count, last);
  describe_rows(op);
  cut_chunks(op);
}

}  // namespace lockstep
