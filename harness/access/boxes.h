// The bytes of an operand as a strided box, and exact tests on pairs of them. Columns of one buffer
// (z | xbc | dt) are boxes that interleave without a common byte, so intervals would not do.
#pragma once

#include <cstdint>

namespace lockstep {

// Bytes [base + i * pitch, base + i * pitch + width) for i in [0, rows), counted from the start of
// an allocation. Made by box(): width < pitch, or one row.
struct Box {
  std::int64_t base = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t pitch = 0;
  std::int64_t end() const { return base + (rows - 1) * pitch + width; }
  bool is_empty() const { return rows == 0; }
  friend bool operator==(const Box&, const Box&) = default;
};

inline Box box(std::int64_t base, std::int64_t rows, std::int64_t width, std::int64_t pitch) {
  if (rows <= 0 || width <= 0) return {};
  if (rows > 1 && pitch > width) return {base, rows, width, pitch};
  const std::int64_t all = (rows - 1) * pitch + width;  // No byte between the rows.
  return {base, 1, all, all};
}
bool overlap(const Box& a, const Box& b);
bool contains_rows(const Box& outer, const Box& inner);  // If the bytes between them are contained.
inline bool contains(const Box& outer, const Box& inner) {
  if (inner.is_empty()) return true;
  if (outer.is_empty() || inner.base < outer.base || inner.end() > outer.end()) return false;
  return outer.rows == 1 || contains_rows(outer, inner);
}

}  // namespace lockstep
