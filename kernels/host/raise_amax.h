// The amax of an operand, taken by the op that stores it: arithmetic.md 5.2.
#pragma once

#include <type_traits>

#include "kernels/ops/fp8.h"

namespace lockstep {

// Raises `op.amax`, if there is one, to the words of the rows in use of what the op has stored:
// those with a document, or in the experts' buffer those with a pair.
template <class Op, class T, Access kAccess>
void raise_amax(const Op& op, const Operand<T, kAccess>& stored, In<std::int32_t> used) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (!op.amax) return;
    Fp8Amax amax{.x = {stored.data, stored.rows, stored.cols, stored.pitch},
                 .row_document = used,
                 .amax = op.amax};
    if constexpr (requires { op.start; }) amax.start = op.start, amax.rows = op.rows;
    run(HostQueue{}, amax);
  }
}
template <class Op, class T, Access kAccess>
void raise_amax(const Op& op, const Operand<T, kAccess>& stored) {
  raise_amax(op, stored, op.row_document);
}

}  // namespace lockstep
