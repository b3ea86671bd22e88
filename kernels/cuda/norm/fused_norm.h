// The add that ends a layer and the norm that begins the next one in one kernel, which reads the
// residual stream once.
#pragma once

#include "kernels/core/queue.h"
#include "kernels/ops/residual.h"
#include "kernels/ops/rms_norm.h"

namespace lockstep {

// Whether there is a kernel for the two, which has their bits. The norm must write nothing that the
// add touches.
bool can_fuse(const ResidualForward<bf16>& residual, const RmsNormForward<bf16>& norm);
void run_fused(CudaQueue queue, const ResidualForward<bf16>& residual,
               const RmsNormForward<bf16>& norm);

}  // namespace lockstep
