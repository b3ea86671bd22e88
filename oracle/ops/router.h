// The router (arithmetic.md 2.11): the experts of each row and their weights, in fp32 in both
// numerics.
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/reductions.h"
#include "oracle/ops/linear.h"

namespace lockstep::oracle {

// Products without tensor cores, and stores without rounding.
template <class Real>
struct Exactly {
  using type = Fp32;
};
template <>
struct Exactly<double> {
  using type = Fp64;
};
template <class Real>
using Unrounded = typename Exactly<Real>::type;

template <class Real>
struct RouterSettings {
  Router kind = Router::softmax;
  std::int64_t slots = 1;
  const Real* bias = nullptr;  // [E], for the choice only; null without expert bias.

  // Not a scenario key: the score of a single slot is kept, or its router would have no gradient.
  // The routed scaling is no key either, and is 1.
  bool renormalises() const { return slots > 1; }
};

// The routing of every row. Padding rows have zeros and no expert.
template <class Real>
struct Routing {
  Matrix<Real> softmax, scores;  // [T, E]
  Matrix<std::int64_t> experts;  // [T, slots], in the order of the choice.
  Matrix<Real> weights;          // [T, slots]
  std::vector<Real> inverse,
      log_sum;  // [T]: 1 / sum of the chosen scores; log of the sum of exp(logit).
  std::vector<std::int64_t> chosen;  // [E]: rows that chose the expert.
  std::int64_t rows = 0;             // Rows that chose, hence belong to documents.
};

// Computes the softmax of one row; returns the log of the sum.
template <class Real>
Real router_softmax(std::int64_t n, const Real* logits, Real* to) {
  Real m = logits[0];
  for (std::int64_t e = 1; e < n; ++e) m = max(m, logits[e]);
  m = add(m, Real(0));
  for (std::int64_t e = 0; e < n; ++e) to[e] = expn(sub(logits[e], m));
  const Real s = r128<Real>(n, [to](std::int64_t e, Real acc) { return add(acc, to[e]); });
  const Real inverse = div(Real(1), s);
  for (std::int64_t e = 0; e < n; ++e) to[e] = mul(to[e], inverse);
  return add(m, log(s));
}

// Chooses the experts with the largest keys; among equal keys the lowest index wins.
template <class Real>
void choose(const std::vector<Real>& keys, std::int64_t slots, std::int64_t* experts,
            bool last_of_equals) {
  std::vector<bool> used(keys.size());
  for (std::int64_t s = 0; s < slots; ++s) {
    std::size_t best = keys.size();
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (used[e]) continue;
      if (best == keys.size() || keys[e] > keys[best] || (last_of_equals && keys[e] == keys[best]))
        best = e;
    }
    used[best] = true;
    experts[s] = static_cast<std::int64_t>(best);
  }
}

// Computes the combine weights of one row from its experts' scores; returns 1 / their sum.
template <class Real>
Real combine_weights(std::int64_t slots, const Real* chosen, bool renormalised, Real* weights) {
  Real sum = 0;
  for (std::int64_t s = 0; s < slots; ++s) sum = add(sum, chosen[s]);
  const Real inverse = div(Real(1), add(sum, Real(0)));
  for (std::int64_t s = 0; s < slots; ++s)
    weights[s] = renormalised ? mul(chosen[s], inverse) : chosen[s];
  return inverse;
}

template <class Real>
Routing<Real> route(const PackedBatch& pack, const RouterSettings<Real>& settings,
                    const Matrix<Real>& logits, Mutant mutant) {
  const std::int64_t n = logits.cols, slots = settings.slots, rows = logits.rows;
  Routing<Real> to{
      Matrix<Real>(rows, n),       Matrix<Real>(rows, n),   Matrix<std::int64_t>(rows, slots),
      Matrix<Real>(rows, slots),   std::vector<Real>(rows), std::vector<Real>(rows),
      std::vector<std::int64_t>(n)};
  const bool unbiased = settings.bias == nullptr || mutant("moe-choice-forgets-the-bias");
  const bool renormalised =
      settings.renormalises() != mutant("moe-weights-are-renormalised-the-other-way");
  std::vector<Real> keys(n), picked(slots);
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      const Real* from = logits.row(i);
      Real* scores = to.scores.row(i);
      std::int64_t* experts = to.experts.row(i);
      to.log_sum[i] = router_softmax(n, from, to.softmax.row(i));
      for (std::int64_t e = 0; e < n; ++e) {
        scores[e] = settings.kind == Router::softmax ? to.softmax.row(i)[e] : sigmoid(from[e]);
        keys[e] = unbiased ? scores[e] : add(scores[e], settings.bias[e]);
      }
      choose(keys, slots, experts, mutant("moe-ties-go-to-the-highest-index"));
      for (std::int64_t s = 0; s < slots; ++s) {
        picked[s] = mutant("moe-bias-enters-the-weight") ? keys[experts[s]] : scores[experts[s]];
        ++to.chosen[experts[s]];
      }
      to.inverse[i] = combine_weights(slots, picked.data(), renormalised, to.weights.row(i));
      ++to.rows;
    }
  }
  return to;
}

}  // namespace lockstep::oracle
