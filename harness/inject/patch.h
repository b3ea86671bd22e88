// Changes to an op whose type is erased: the address of an operand, the value of a scalar.
#pragma once

#include "engine/device/ledger.h"

namespace lockstep {

// The op with `operand`, which is one of its operands, at another address.
Submission rebased(const Submission& op, const OperandBytes& operand, void* base);
// Doubles the op's first scalar that is an ordinary float; false if it has none.
bool double_scalar(Submission& op);

}  // namespace lockstep
