#include "kernels/expert_state.h"

#include "kernels/fault.h"

namespace lockstep {

void run(HostQueue, const CountPairs& op) {
  const bool counts_kept = fault("count-pairs-forgets-dropped-pairs");
  for (std::int64_t e = 0; e < op.counts.cols; ++e) {
    const std::int32_t chosen = counts_kept ? op.rows.data[e] : op.counts.data[e];
    op.step.data[e] += chosen;
    op.total.data[e] += chosen;
    op.kept.data[e] += op.rows.data[e];
  }
}

void run(HostQueue, const UpdateExpertBias& op) {
  const std::int64_t experts = op.bias.cols;
  const bool keeps = fault("expert-bias-keeps-the-counts-of-the-step");
  const float rate = fault("expert-bias-moves-the-other-way") ? neg(op.rate) : op.rate;
  std::int64_t all = 0;
  for (std::int64_t e = 0; e < experts; ++e) all += op.step.data[e];
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t share = std::int64_t{op.step.data[e]} * experts;
    float& bias = op.bias.data[e];
    if (share < all) bias = add(bias, rate);
    if (share > all) bias = sub(bias, rate);
    if (!keeps) op.step.data[e] = 0;
  }
}

}  // namespace lockstep
