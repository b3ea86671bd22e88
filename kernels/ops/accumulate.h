// Gradient accumulation: arithmetic.md 1. All fp32.
#pragma once

#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// acc = add(acc, g), element by element, for each of the terms that lie one below the other in g,
// in their order.
struct AccumulateGradient {
  static constexpr const char* kName = "accumulate_gradient";
  In<float> g;       // [terms * rows, cols]
  Accum<float> acc;  // [rows, cols]
};
// acc = +0: the start of a step.
struct ZeroGradient {
  static constexpr const char* kName = "zero_gradient";
  Out<float> acc;  // [rows, cols]
};
void check(const AccumulateGradient& op);
void run(HostQueue, const AccumulateGradient& op);
void run(CudaQueue, const AccumulateGradient& op);
void check(const ZeroGradient& op);
void run(HostQueue, const ZeroGradient& op);
void run(CudaQueue, const ZeroGradient& op);

}  // namespace lockstep
