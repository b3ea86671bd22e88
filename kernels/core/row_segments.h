// Segments of the rows of an fp8 operand, on host and device: arithmetic.md 5.1.
#pragma once

#include <cstdint>

#include "kernels/core/fp8.h"

namespace lockstep {

// `start` and `rows` say where each segment lies, in device memory: one behind the other, and a
// segment without rows begins where the next one does, or before it. Without them every segment has
// `each` rows, and the matrix begins with row `begin` of them all: it may have a part of them.
struct RowSegments {
  const std::int32_t* start;
  const std::int32_t* rows;
  std::int64_t total;  // Rows of the matrix.
  std::int64_t count;
  std::int64_t each = total / count, begin = 0;

  LOCKSTEP_HD bool listed() const { return rows != nullptr; }
  LOCKSTEP_HD std::int64_t first(std::int64_t s) const {
    return listed() ? start[s] : inside(s * each - begin);
  }
  LOCKSTEP_HD std::int64_t size(std::int64_t s) const {
    return listed() ? rows[s] : inside((s + 1) * each - begin) - first(s);
  }
  // -1: the row is in no segment.
  LOCKSTEP_HD std::int64_t of_row(std::int64_t r) const {
    if (!listed()) return (r + begin) / each;
    std::int64_t behind = 0, end = count;  // The first segment that begins behind the row.
    while (behind < end) {
      const std::int64_t middle = (behind + end) / 2;
      if (start[middle] <= r) {
        behind = middle + 1;
      } else {
        end = middle;
      }
    }
    return behind > 0 && r < start[behind - 1] + rows[behind - 1] ? behind - 1 : -1;
  }
  // Listed segments lie behind one another in the columns of transposed codes, each up to a
  // multiple of 16.
  LOCKSTEP_HD std::int64_t place(std::int64_t s) const {
    std::int64_t place = 0;
    for (std::int64_t i = 0; i < s; ++i) place += fp8_padded(rows[i]);
    return place;
  }

 private:
  LOCKSTEP_HD std::int64_t inside(std::int64_t row) const {
    return row < 0 ? 0 : row > total ? total : row;
  }
};
// The segments of an op with the operands `start` and `rows`.
template <class Op>
LOCKSTEP_HD RowSegments segments_of(const Op& op, std::int64_t total, std::int64_t count) {
  RowSegments segments{op.start.data, op.rows.data, total, count};
  if constexpr (requires { op.segment_rows; }) {
    if (op.segment_rows > 0) segments.each = op.segment_rows, segments.begin = op.first_row;
  }
  return segments;
}
// Columns that transposed codes need at most.
LOCKSTEP_HD std::int64_t transposed_columns(std::int64_t total, std::int64_t segments) {
  return fp8_padded(total) + (segments - 1) * kFp8Align;
}

}  // namespace lockstep
