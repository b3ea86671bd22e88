// Ops of the optimizer that one kernel runs, as many as there are side by side.
#pragma once

#include <span>

#include "kernels/core/queue.h"
#include "kernels/ops/accumulate.h"
#include "kernels/ops/optimizer.h"

namespace lockstep {

// Whether the op may be one of a batch: its operands lie as the kernel needs it.
bool joins_batch(const ZeroGradient& op);
bool joins_batch(const GradientRowSums& op);
bool joins_batch(const AdamW& op);

// No op writes what another one touches.
void run_batch(CudaQueue queue, std::span<const ZeroGradient* const> ops);
void run_batch(CudaQueue queue, std::span<const GradientRowSums* const> ops);
void run_batch(CudaQueue queue, std::span<const AdamW* const> ops);

}  // namespace lockstep
