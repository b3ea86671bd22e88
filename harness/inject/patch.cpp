#include "harness/inject/patch.h"

#include <cstring>
#include <type_traits>

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

// Where the operand lies in the op: its address and then its rows, which nothing else in an op has
// together.
std::size_t place_of(const Submission& op, const OperandBytes& operand) {
  const auto* bytes = static_cast<const std::byte*>(op.op());
  std::size_t i = 0;
  while (i + 16 <= op.type().size && (at<void*>(bytes + i) != operand.base ||
                                      at<std::int64_t>(bytes + i + 8) != operand.rows)) {
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
  for (const std::size_t place : op.type().floats()) {
    std::byte* const scalar = bytes_of(op) + place;
    const auto value = at<float>(scalar);
    const float twice = value + value;
    if (value == twice) continue;  // 0, infinite.
    std::memcpy(scalar, &twice, sizeof twice);
    return true;
  }
  return false;
}

}  // namespace lockstep
