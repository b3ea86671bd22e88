// Where a pack's documents lie, as the field's packed attention has it (TransformerEngine's names):
// `cu_seqlens` counts the tokens before each slot, `cu_seqlens_padded` the rows before it. Both are
// [1, capacity + 1]; behind the last slot in use they repeat their last entry, so that every unused
// slot is empty. arithmetic.md 1.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"

namespace lockstep {

// `op` is any op with these two operands, or anything else that has them as members.
template <class Op>
LOCKSTEP_HD std::int64_t slots_of(const Op& op) {
  return op.cu_seqlens.cols - 1;
}
template <class Op>
LOCKSTEP_HD std::int32_t first_row_of(const Op& op, std::int64_t slot) {
  return op.cu_seqlens_padded.data[slot];
}
// The slot's document is this many rows from its first row on.
template <class Op>
LOCKSTEP_HD std::int32_t tokens_of(const Op& op, std::int64_t slot) {
  return op.cu_seqlens.data[slot + 1] - op.cu_seqlens.data[slot];
}

}  // namespace lockstep
