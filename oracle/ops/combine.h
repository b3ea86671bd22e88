// The sum over a row's experts and its gradients, arithmetic.md 2.11.
#pragma once

#include "oracle/ops/dispatch.h"

namespace lockstep::oracle {

// out = st(sum of weight * y over the slots asc that were not dropped, + shared). `shared` may be
// null.
template <class Precision, class Real = typename Precision::Real>
void combine(const PackedBatch& pack, const Matrix<Real>& weights, const Dispatch& dispatch,
             const Matrix<Real>& y, const Matrix<Real>* shared, Matrix<Real>& out, Mutant mutant) {
  const std::int64_t slots = weights.cols;
  const bool downwards = mutant("moe-combine-takes-slots-downwards"),
             alone = mutant("moe-shared-expert-is-forgotten");
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      for (std::int64_t k = 0; k < out.cols; ++k) {
        Real c = 0;
        for (std::int64_t n = 0; n < slots; ++n) {
          const std::int64_t s = downwards ? slots - 1 - n : n, place = dispatch.place.row(i)[s];
          if (place != kDropped) c = fma(weights.row(i)[s], y.row(place)[k], c);
        }
        c = add(c, Real(0));
        if (shared != nullptr && !alone) c = add(c, shared->row(i)[k]);
        out.row(i)[k] = Precision::st(c);
      }
    }
  }
}

// Computes the gradients of the experts' outputs [buffer, d], stored, and of the weights [T,
// slots], which are +0 where the pair was dropped.
template <class Precision, class Real = typename Precision::Real>
void combine_gradient(const PackedBatch& pack, const Matrix<Real>& weights,
                      const Dispatch& dispatch, const Matrix<Real>& y, const Matrix<Real>& d_out,
                      Matrix<Real>& dy, Matrix<Real>& d_weights, Mutant mutant) {
  const bool unweighted = mutant("moe-expert-gradient-forgets-the-weight");
  for_each_pair(pack, weights.cols, false, [&](std::int64_t i, std::int64_t s) {
    const std::int64_t place = dispatch.place.row(i)[s];
    if (place == kDropped) return;
    const Real weight = unweighted ? Real(1) : weights.row(i)[s];
    const Real *d = d_out.row(i), *from = y.row(place);
    for (std::int64_t k = 0; k < y.cols; ++k) dy.row(place)[k] = Precision::st(mul(weight, d[k]));
    d_weights.row(i)[s] =
        r128<Real>(y.cols, [=](std::int64_t k, Real acc) { return fma(d[k], from[k], acc); });
  });
}

// Returns the gradient of the layer's input: the row's experts (slots asc), then the shared expert,
// then the router.
template <class Precision, class Real = typename Precision::Real>
Matrix<Real> input_gradient(const PackedBatch& pack, const Dispatch& dispatch,
                            const Matrix<Real>& d_buffer, const Matrix<Real>* d_shared,
                            const Matrix<Real>& d_router, Mutant mutant) {
  Matrix<Real> dx(d_router.rows, d_router.cols);
  const bool unrouted = mutant("moe-input-gradient-forgets-the-router");
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      for (std::int64_t k = 0; k < dx.cols; ++k) {
        Real c = 0;
        for (std::int64_t s = 0; s < dispatch.place.cols; ++s) {
          const std::int64_t place = dispatch.place.row(i)[s];
          if (place != kDropped) c = add(c, d_buffer.row(place)[k]);
        }
        if (d_shared != nullptr) c = add(c, d_shared->row(i)[k]);
        if (!unrouted) c = add(c, d_router.row(i)[k]);
        dx.row(i)[k] = Precision::st(add(c, Real(0)));
      }
    }
  }
  return dx;
}

}  // namespace lockstep::oracle
