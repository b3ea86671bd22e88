#include "harness/access/boxes.h"

#include <algorithm>

namespace lockstep {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

// Is there a whole k with low < k * pitch < high and first <= k <= last?
bool has_multiple(std::int64_t low, std::int64_t high, std::int64_t pitch, std::int64_t first,
                  std::int64_t last) {
  const std::int64_t from = std::max(first, floor_div(low, pitch) + 1);
  const std::int64_t to = std::min(last, floor_div(high - 1, pitch));
  return from <= to;
}

// Row i of `a` meets [base, base + width) when base - a.base - a.width < i * pitch < base - a.base
// + width.
bool row_meets(const Box& a, std::int64_t base, std::int64_t width) {
  const std::int64_t d = base - a.base;
  if (a.rows == 1) return -width < d && d < a.width;
  return has_multiple(d - a.width, d + width, a.pitch, 0, a.rows - 1);
}

// A single row inside of one row of `outer`.
bool holds_row(const Box& outer, std::int64_t base, std::int64_t width) {
  const std::int64_t d = base - outer.base;
  if (d < 0) return false;
  const std::int64_t row = outer.rows == 1 ? 0 : d / outer.pitch;
  return row < outer.rows && d - row * outer.pitch + width <= outer.width;
}

}  // namespace

bool overlap(const Box& a, const Box& b) {
  if (a.is_empty() || b.is_empty() || a.end() <= b.base || b.end() <= a.base) return false;
  if (b.rows == 1) return row_meets(a, b.base, b.width);
  if (a.rows == 1) return row_meets(b, a.base, a.width);
  if (a.pitch == b.pitch) {  // Row i of a meets row j of b: a question about i - j.
    const std::int64_t d = b.base - a.base;
    return has_multiple(d - a.width, d + b.width, a.pitch, 1 - b.rows, a.rows - 1);
  }
  const Box& few = a.rows <= b.rows ? a : b;
  const Box& many = a.rows <= b.rows ? b : a;
  for (std::int64_t i = 0; i < few.rows; ++i) {
    if (row_meets(many, few.base + i * few.pitch, few.width)) return true;
  }
  return false;
}

bool contains_rows(const Box& outer, const Box& inner) {
  if (outer.pitch == inner.pitch && inner.rows > 1) {
    return holds_row(outer, inner.base, inner.width) &&
           (inner.base - outer.base) / outer.pitch + inner.rows <= outer.rows;
  }
  for (std::int64_t i = 0; i < inner.rows; ++i) {
    if (!holds_row(outer, inner.base + i * inner.pitch, inner.width)) return false;
  }
  return true;
}

}  // namespace lockstep
