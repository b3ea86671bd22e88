#include "kernels/moe/expert_state.h"

#include <vector>

#include "kernels/core/fault.h"

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
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(experts));
  std::int64_t all = 0;
  for (std::int64_t r = 0; r < op.step.rows; ++r) {
    for (std::int64_t e = 0; e < experts; ++e) {
      chosen[static_cast<std::size_t>(e)] += op.step.row(r)[e];
      all += op.step.row(r)[e];
      if (!keeps) op.step.row(r)[e] = 0;
    }
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t share = chosen[static_cast<std::size_t>(e)] * experts;
    float& bias = op.bias.data[e];
    if (share < all) bias = add(bias, rate);
    if (share > all) bias = sub(bias, rate);
  }
}

}  // namespace lockstep
