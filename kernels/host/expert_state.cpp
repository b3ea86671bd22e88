#include "kernels/moe/expert_state.h"

#include <vector>

#include "kernels/core/at.h"
#include "kernels/core/fault.h"

namespace lockstep {

void run(HostQueue, const CountPairs& op) {
  for (std::int64_t e = 0; e < op.counts.cols; ++e) {
    const std::int32_t chosen =
        faulty("count-pairs-forgets-dropped-pairs", op.counts.data[e], op.rows.data[e]);
    op.step.data[e] += chosen;
    op.total.data[e] += chosen;
    op.kept.data[e] += op.rows.data[e];
  }
}

// Counts are compared as integers, however large they are.
static std::int64_t compared(std::int64_t count) {
  const float rounded = static_cast<float>(count);
  return faulty("expert-bias-compares-in-float", count, static_cast<std::int64_t>(rounded));
}

void run(HostQueue, const UpdateExpertBias& op) {
  const std::int64_t experts = op.bias.cols;
  const float rate = faulty("expert-bias-moves-the-other-way", op.rate, neg(op.rate));
  std::vector<std::int64_t> chosen(experts);
  std::int64_t all = 0;
  for (std::int64_t r = 0; r < op.step.rows; ++r) {
    for (std::int64_t e = 0; e < experts; ++e) {
      at(chosen, e) += op.step.row(r)[e];
      all += op.step.row(r)[e];
      op.step.row(r)[e] = faulty("expert-bias-keeps-the-counts-of-the-step", 0, op.step.row(r)[e]);
    }
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t share = compared(at(chosen, e) * experts), mean = compared(all);
    float& bias = op.bias.data[e];
    if (share < mean) bias = add(bias, rate);
    if (share > mean) bias = sub(bias, rate);
  }
}

}  // namespace lockstep
