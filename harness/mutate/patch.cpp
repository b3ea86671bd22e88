#include "harness/mutate/patch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace {

static_assert(std::is_trivially_copyable_v<Submission>);

// Bytes of the op in the submission; `op()` points there.
std::byte* bytes_of(Submission& op) { return static_cast<std::byte*>(const_cast<void*>(op.op())); }

template <class Value>
Value at(const std::byte* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

constexpr std::size_t kOperandBytes = sizeof(In<float>);

// Where the operand lies in the op: its address and then its rows, which nothing else in an op has together.
std::size_t place_of(const Submission& op, const OperandBytes& operand) {
  const auto* bytes = static_cast<const std::byte*>(op.op());
  std::size_t i = 0;
  while (i + 16 <= op.type().size &&
         (at<void*>(bytes + i) != operand.base || at<std::int64_t>(bytes + i + 8) != operand.rows)) {
    i += 8;
  }
  return i + 16 <= op.type().size ? i : op.type().size;
}

}  // namespace

Submission rebased(const Submission& op, const OperandBytes& operand, void* base) {
  Submission changed = op;
  const std::size_t place = place_of(op, operand);
  if (place < op.type().size) std::memcpy(bytes_of(changed) + place, &base, sizeof base);
  return changed;
}

bool double_scalar(Submission& op) {
  std::byte* bytes = bytes_of(op);
  std::vector<bool> taken(op.type().size);
  for (const OperandBytes& operand : op.operands()) {
    const std::size_t first = place_of(op, operand);
    for (std::size_t i = first; i < std::min(first + kOperandBytes, taken.size()); ++i) taken[i] = true;
  }
  for (std::size_t i = 0; i + 4 <= op.type().size; i += 4) {
    if (taken[i]) continue;
    const float value = at<float>(bytes + i);
    // Sizes and flags are tiny or no numbers when read as floats.
    if (!(std::fabs(value) > 1e-12f && std::fabs(value) < 1e12f)) continue;
    const float twice = value + value;
    std::memcpy(bytes + i, &twice, sizeof twice);
    return true;
  }
  return false;
}

}  // namespace lockstep
