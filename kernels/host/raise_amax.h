// The amax of an operand, taken by the op that stores it: arithmetic.md 5.2.
#pragma once

#include <type_traits>

#include "kernels/ops/fp8.h"

namespace lockstep {

// Raises `op.amax`, if there is one, to the words of the rows in use of what the op has stored.
template <class Op, class T>
void raise_amax(const Op& op, const Out<T>& stored) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (!op.amax) return;
    run(HostQueue{}, Fp8Amax{.x = Tensor<bf16>{stored.data, stored.rows, stored.cols, stored.pitch},
                             .row_document = op.row_document,
                             .amax = op.amax});
  }
}

}  // namespace lockstep
