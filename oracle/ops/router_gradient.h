// The gradient of the router's logits from that of the combine weights (arithmetic.md 2.11).
#pragma once

#include "oracle/ops/balance.h"

namespace lockstep::oracle {

// Computes the gradients of row i's chosen scores from those of its weights.
template <class Real>
void chosen_gradient(const Routing<Real>& routing, std::int64_t i, bool renormalised,
                     const Real* d_weights, Real* d_scores, Mutant mutant) {
  const std::int64_t slots = routing.weights.cols;
  const Real inverse = routing.inverse[i];
  const auto score = [&](std::int64_t s) {
    return routing.scores.row(i)[routing.experts.row(i)[s]];
  };
  Real t = 0;
  for (std::int64_t s = 0; s < slots; ++s) t = fma(d_weights[s], mul(score(s), inverse), t);
  t = mutant("moe-weight-gradient-forgets-the-sum") ? Real(0) : add(t, Real(0));
  for (std::int64_t s = 0; s < slots; ++s) {
    d_scores[routing.experts.row(i)[s]] =
        renormalised ? mul(inverse, sub(d_weights[s], t)) : d_weights[s];
  }
}

// Computes dl of row i from the gradients of its scores.
template <class Real>
void logit_gradient(Router kind, std::int64_t n, const Real* scores, const Real* d_scores, Real* dl,
                    Mutant mutant) {
  if (kind == Router::sigmoid) {
    const bool line = mutant("moe-sigmoid-gradient-forgets-a-factor");
    for (std::int64_t e = 0; e < n; ++e) {
      dl[e] = mul(d_scores[e], line ? scores[e] : mul(scores[e], sub(Real(1), scores[e])));
    }
    return;
  }
  Real t =
      r128<Real>(n, [=](std::int64_t e, Real acc) { return fma(d_scores[e], scores[e], acc); });
  if (mutant("moe-softmax-gradient-forgets-the-mean")) t = 0;
  for (std::int64_t e = 0; e < n; ++e) dl[e] = mul(scores[e], sub(d_scores[e], t));
}

// Returns dl [T, E]. d_weights is [T, slots], with +0 where the pair was dropped.
template <class Real>
Matrix<Real> router_gradient(const PackedBatch& pack, const RouterSettings<Real>& settings,
                             const Routing<Real>& routing, const Balance<Real>& balance,
                             const Matrix<Real>& d_weights, Mutant mutant) {
  const std::int64_t n = routing.scores.cols;
  const Real twice =
      mul(mutant("moe-z-loss-gradient-forgets-two") ? Real(1) : Real(2), balance.z_scale);
  Matrix<Real> dl(routing.scores.rows, n);
  std::vector<Real> d_scores(n);
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      std::fill(d_scores.begin(), d_scores.end(), Real(0));
      chosen_gradient(routing, i, settings.renormalises(), d_weights.row(i), d_scores.data(),
                      mutant);
      for (std::size_t e = 0; e < balance.slope.size(); ++e)
        d_scores[e] = add(d_scores[e], balance.slope[e]);
      logit_gradient(settings.kind, n, routing.scores.row(i), d_scores.data(), dl.row(i), mutant);
      for (std::int64_t e = 0; e < n && balance.z_on; ++e) {
        dl.row(i)[e] = fma(mul(twice, routing.log_sum[i]), routing.softmax.row(i)[e], dl.row(i)[e]);
      }
    }
  }
  return dl;
}

}  // namespace lockstep::oracle
