// The router losses of a microbatch (arithmetic.md 2.11): load balancing and z loss. They are
// reported apart from the loss and differentiated with weight 1; rows of no document do not count.
#pragma once

#include "oracle/ops/router.h"

namespace lockstep::oracle {

template <class Real>
struct Balance {
  std::vector<Real> slope;  // [E]: d aux / d score; empty if the loss is off. The rows that chose
                            // count as constant.
  Real z_scale = 0;         // z loss = z_scale * sum of the squared log sums.
  bool z_on = false;
  Real aux_loss = 0, z_loss = 0;
};

template <class Real>
Real aux_slope(Real chosen, Real inv_m, Real coefficient, Real experts, Real rows, Real slots) {
  return mul(chosen, mul(inv_m, div(mul(coefficient, experts), mul(mul(rows, slots), rows))));
}

// `inv_m` is 1 / microbatches of the step on all ranks, `pushed` is n_e.
template <class Real>
Balance<Real> balance(const Scenario::Model::Moe& moe, const Routing<Real>& routing,
                      const std::vector<std::int64_t>& pushed, Real inv_m, Mutant mutant) {
  const std::int64_t total = routing.scores.rows, experts = routing.scores.cols;
  const auto rows =
      static_cast<Real>(mutant("moe-losses-count-padding-rows") ? total : routing.rows);
  Balance<Real> to;
  if (moe.aux_loss.millionths > 0) {
    const std::vector<Real> sums = column_sums<Real>(
        total, experts,
        [&](std::int64_t i, std::int64_t e, Real p) { return add(p, routing.scores.row(i)[e]); });
    to.slope.resize(experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      if (routing.rows > 0) {
        to.slope[e] =
            aux_slope(static_cast<Real>(pushed[e]), inv_m, static_cast<Real>(moe.aux_loss.value()),
                      static_cast<Real>(experts), rows, static_cast<Real>(moe.top_k));
      }
      to.aux_loss = fma(to.slope[e], sums[e], to.aux_loss);
    }
    to.aux_loss = add(to.aux_loss, Real(0));
  }
  to.z_on = moe.z_loss.millionths > 0;
  if (to.z_on && routing.rows > 0) {
    to.z_scale = mul(inv_m, div(static_cast<Real>(moe.z_loss.value()), rows));
    to.z_loss =
        mul(to.z_scale, column_sums<Real>(total, 1, [&](std::int64_t i, std::int64_t, Real p) {
              return fma(routing.log_sum[i], routing.log_sum[i], p);
            })[0]);
  }
  return to;
}

}  // namespace lockstep::oracle
