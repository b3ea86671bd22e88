// Residual add with dropout, arithmetic.md 2.3.
#pragma once

#include "oracle/ops/dropout.h"

namespace lockstep::oracle {

// r' = st(r + drop(y)). The result of dropout enters the sum unrounded.
template <class Precision, class Real = typename Precision::Real>
void residual(const PackedBatch& pack, const DropoutKey& key, DropoutPlace place,
              const Matrix<Real>& r, const Matrix<Real>& y, Matrix<Real>& out, Mutant mutant) {
  const Matrix<Real> branch = dropped(pack, key, place, y, mutant);
  const bool lost = mutant("residual-is-forgotten");
  for (const Piece& run : pack.runs) {
    const std::int64_t first = run.first * r.cols, last = (run.first + run.rows) * r.cols;
    for (std::int64_t e = first; e < last; ++e) {
      out.values[e] = Precision::st(add(lost ? Real(0) : r.values[e], branch.values[e]));
    }
  }
}

// Applies the same mask and scale backwards, unrounded, since dropout never rounds by itself. The
// embedding takes the result as it is.
template <class Real>
Matrix<Real> dropped_gradient(const PackedBatch& pack, const DropoutKey& given, DropoutPlace place,
                              const Matrix<Real>& dr, Mutant mutant) {
  DropoutKey key = given;
  if (mutant("dropout-backward-draws-another-mask")) ++key.seed;
  return dropped(pack, key, place, dr, mutant);
}

// Returns dy of the branch, stored.
template <class Precision, class Real = typename Precision::Real>
Matrix<Real> branch_gradient(const PackedBatch& pack, const DropoutKey& key, DropoutPlace place,
                             const Matrix<Real>& dr, Mutant mutant) {
  Matrix<Real> dy = dropped_gradient(pack, key, place, dr, mutant);
  for (Real& value : dy.values) value = Precision::st(value);
  return dy;
}

// dr = st(dr' + dx), with one store. dx is the unrounded result of the norm.
template <class Precision, class Real = typename Precision::Real>
void add_to_residual_gradient(const PackedBatch& pack, Matrix<Real>& dr, const Matrix<Real>& dx,
                              Mutant mutant) {
  if (mutant("residual-gradient-skips-the-branch")) return;
  for (const Piece& run : pack.runs) {
    const std::int64_t first = run.first * dr.cols, last = (run.first + run.rows) * dr.cols;
    for (std::int64_t e = first; e < last; ++e)
      dr.values[e] = Precision::st(add(dr.values[e], dx.values[e]));
  }
}

}  // namespace lockstep::oracle
