#include "engine/cuda/launches/touched.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep {

static const std::byte* end_of(const Touched& one) {
  return one.begin + (one.rows - 1) * one.pitch_bytes + one.row_bytes;
}

// Columns of one matrix that lie beside each other do not meet.
static bool meet(const Touched& a, const Touched& b) {
  if (!a.is_written && !b.is_written) return false;
  if (a.begin >= end_of(b) || b.begin >= end_of(a)) return false;
  const std::int64_t pitch = a.pitch_bytes;
  if (a.rows < 2 || b.rows < 2 || pitch != b.pitch_bytes) return true;
  const std::int64_t apart = ((b.begin - a.begin) % pitch + pitch) % pitch;
  return apart < a.row_bytes || apart + b.row_bytes > pitch;
}

bool meet(const std::vector<Touched>& a, const std::vector<Touched>& b) {
  return std::ranges::any_of(a, [&](const Touched& x) {
    return std::ranges::any_of(b, [&](const Touched& y) { return meet(x, y); });
  });
}

std::vector<Touched> touched_by(const std::vector<OperandBytes>& operands) {
  std::vector<Touched> list;
  for (const OperandBytes& one : operands)
    list.push_back({static_cast<const std::byte*>(one.base), one.rows, one.row_bytes,
                    one.pitch_bytes, one.access != Access::in});
  return list;
}

}  // namespace lockstep
