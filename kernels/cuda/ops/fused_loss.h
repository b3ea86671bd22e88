// Cross entropy and its gradient in one kernel, which reads the logits once.
#pragma once

#include "kernels/core/queue.h"
#include "kernels/ops/cross_entropy.h"

namespace lockstep {

// Whether there is a kernel for the two, which has their bits. The second op must write nothing
// that the first touches.
bool can_fuse(const CrossEntropyForward<bf16>& forward, const CrossEntropyBackward<bf16>& backward);
void run_fused(CudaQueue queue, const CrossEntropyForward<bf16>& forward,
               const CrossEntropyBackward<bf16>& backward);

}  // namespace lockstep
