// Activations of the MLP, arithmetic.md 2.10.
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "scenarios/scenario.h"

namespace lockstep::oracle {

template <class Precision, class Real = typename Precision::Real>
void activation(const PackedBatch& pack, MlpActivation kind, const Matrix<Real>& h, Matrix<Real>& a,
                Mutant mutant) {
  const std::int64_t n = a.cols;
  const bool line = mutant("squared-relu-forgets-the-square"),
             swapped = mutant("swiglu-swaps-gate-and-up");
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      const Real* from = h.row(i);
      Real* to = a.row(i);
      if (kind == MlpActivation::squared_relu) {
        for (std::int64_t k = 0; k < n; ++k) {
          to[k] = Precision::st(from[k] > 0 ? (line ? from[k] : mul(from[k], from[k])) : Real(0));
        }
      } else {
        const Real *gate = from + (swapped ? n : 0), *up = from + (swapped ? 0 : n);
        for (std::int64_t k = 0; k < n; ++k) to[k] = Precision::st(mul(silu(gate[k]), up[k]));
      }
    }
  }
}

template <class Precision, class Real = typename Precision::Real>
Matrix<Real> activation_gradient(const PackedBatch& pack, MlpActivation kind, const Matrix<Real>& h,
                                 const Matrix<Real>& da, Mutant mutant) {
  const std::int64_t n = da.cols;
  const Real two = mutant("squared-relu-gradient-forgets-two") ? Real(1) : Real(2);
  const bool line = mutant("swiglu-gradient-forgets-dsilu");
  Matrix<Real> dh(h.rows, h.cols);
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      const Real *gate = h.row(i), *up = gate + n, *d = da.row(i);
      Real* to = dh.row(i);
      if (kind == MlpActivation::squared_relu) {
        for (std::int64_t k = 0; k < n; ++k)
          to[k] = Precision::st(gate[k] > 0 ? mul(mul(two, gate[k]), d[k]) : Real(0));
      } else {
        for (std::int64_t k = 0; k < n; ++k) {
          to[k] = Precision::st(mul(mul(d[k], up[k]), line ? Real(1) : dsilu(gate[k])));
          to[n + k] = Precision::st(mul(d[k], silu(gate[k])));
        }
      }
    }
  }
  return dh;
}

}  // namespace lockstep::oracle
