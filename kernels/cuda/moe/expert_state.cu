#include "kernels/cuda/common/element.cuh"
#include "kernels/moe/expert_state.h"

namespace lockstep {
namespace {

__global__ void count_pairs(CountPairs op) {
  pdl_begin();
  const Element e = own_element(1, op.counts.cols);
  if (!e.inside) return;
  const std::int32_t chosen = at(op.counts, 0, e.col);
  at(op.step, 0, e.col) += chosen;
  at(op.total, 0, e.col) += chosen;
  at(op.kept, 0, e.col) += at(op.rows, 0, e.col);
}

// One block, so that every thread has summed before any count is reset.
__global__ void update_expert_bias(UpdateExpertBias op) {
  pdl_begin();
  const std::int64_t experts = op.bias.cols;
  std::int64_t all = 0;
  for (std::int64_t r = 0; r < op.step.rows; ++r) {
    for (std::int64_t e = 0; e < experts; ++e) all += at(op.step, r, e);
  }
  __syncthreads();
  for (std::int64_t e = threadIdx.x; e < experts; e += kThreads) {
    std::int64_t chosen = 0;
    for (std::int64_t r = 0; r < op.step.rows; ++r) {
      chosen += at(op.step, r, e);
      at(op.step, r, e) = 0;
    }
    const std::int64_t share = chosen * experts;
    float& bias = at(op.bias, 0, e);
    if (share < all) bias = add(bias, op.rate);
    if (share > all) bias = sub(bias, op.rate);
  }
}

}  // namespace

void run(CudaQueue queue, const CountPairs& op) {
  launch_elements(queue, 1, op.counts.cols, count_pairs, op);
}
void run(CudaQueue queue, const UpdateExpertBias& op) {
  launch(queue, dim3(1), dim3(kThreads), kPdl, update_expert_bias, op);
}

}  // namespace lockstep
