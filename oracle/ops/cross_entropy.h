// Cross entropy, arithmetic.md 2.12, and the loss of a microbatch.
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "oracle/arithmetic/reductions.h"

namespace lockstep::oracle {

template <class Real>
struct SoftmaxSum {
  Real m, s;
};

template <class Real>
SoftmaxSum<Real> softmax_sum(const Real* x, std::int64_t n) {
  Real m = x[0];
  for (std::int64_t v = 1; v < n; ++v) m = max(m, x[v]);
  m = add(m, Real(0));
  return {m,
          r1024<Real>(n, [=](std::int64_t v, Real acc) { return add(acc, expn(sub(x[v], m))); })};
}

// Returns the loss of one row; dlogit may be null.
template <class Precision, class Real = typename Precision::Real>
Real cross_entropy_row(const Real* x, std::int64_t n, std::int32_t target, Real inv_n, Real* dlogit,
                       Mutant mutant) {
  const auto [m, s] = softmax_sum(x, n);
  if (dlogit != nullptr) {
    const Real inverse = div(Real(1), s);
    for (std::int64_t v = 0; v < n; ++v) dlogit[v] = mul(expn(sub(x[v], m)), inverse);
    if (!mutant("loss-gradient-forgets-the-target")) dlogit[target] = sub(dlogit[target], Real(1));
    const bool divided = mutant("loss-gradient-is-divided");
    for (std::int64_t v = 0; v < n; ++v) {
      dlogit[v] =
          Precision::st(divided ? div(dlogit[v], div(Real(1), inv_n)) : mul(dlogit[v], inv_n));
    }
  }
  return sub(add(m, log(s)), x[target]);
}

// Computes the token losses [1, T], +0 without a target. Returns the loss of the microbatch.
template <class Precision, class Real = typename Precision::Real>
Real cross_entropy(const PackedBatch& pack, const Matrix<Real>& logits, Real inv_n,
                   Matrix<Real>& losses, Matrix<Real>* dlogits, Mutant mutant) {
  for (std::int64_t i = 0; i < pack.rows; ++i) {
    std::int32_t target = pack.targets[i];
    if (target < 0 && mutant("loss-counts-masked-targets") && pack.tokens[i] >= 0) target = 0;
    if (target < 0) continue;
    losses.values[i] =
        cross_entropy_row<Precision>(logits.row(i), logits.cols, target, inv_n,
                                     dlogits != nullptr ? dlogits->row(i) : nullptr, mutant);
  }
  Real sum = column_sums<Real>(pack.rows, 1, [&](std::int64_t i, std::int64_t, Real p) {
    return add(p, losses.values[i]);
  })[0];
  if (mutant("loss-sums-in-one-chain")) {
    sum = 0;
    for (const Real loss : losses.values) sum = add(sum, loss);
  }
  return mul(sum, inv_n);
}

}  // namespace lockstep::oracle
