// The memory that ops touch, and whether their order matters.
#pragma once

#include <vector>

#include "kernels/cuda/common/beside.h"
#include "kernels/submission/submission.h"

namespace lockstep {

// Whether one writes what the other reads or writes.
bool meet(const std::vector<Touched>& a, const std::vector<Touched>& b);

std::vector<Touched> touched_by(const std::vector<OperandBytes>& operands);

}  // namespace lockstep
