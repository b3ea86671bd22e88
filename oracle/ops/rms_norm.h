// RMSNorm, arithmetic.md 2.2. The gated norm (2.9) is this one on each of its groups.
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "oracle/arithmetic/reductions.h"

namespace lockstep::oracle {

// Computes y = x * rstd * gain of one row or group; returns rstd.
template <class Precision, class Real = typename Precision::Real>
Real rms_norm_row(std::int64_t n, const Real* x, const Real* gain, Real eps, Real* y,
                  Mutant mutant) {
  const Real ss = r128<Real>(n, [x](std::int64_t e, Real acc) { return fma(x[e], x[e], acc); });
  const Real mean = div(ss, static_cast<Real>(mutant("norm-divides-by-one-less") ? n - 1 : n));
  const Real rstd = Precision::kept(rsqrt(mutant("norm-forgets-eps") ? mean : add(mean, eps)));
  const bool bare = mutant("norm-forgets-its-gain");
  for (std::int64_t k = 0; k < n; ++k)
    y[k] = Precision::st(mul(mul(x[k], rstd), bare ? Real(1) : gain[k]));
  return rstd;
}

// Computes dx of one row or group, not stored. Leaves u[k] = x[k] * rstd for the gain's gradient.
template <class Precision, class Real = typename Precision::Real>
void rms_norm_row_gradient(std::int64_t n, const Real* x, Real rstd, const Real* gain,
                           const Real* dy, Real* u, Real* dx, Mutant mutant) {
  for (std::int64_t k = 0; k < n; ++k) u[k] = mul(x[k], rstd);
  const Real dot =
      r128<Real>(n, [=](std::int64_t k, Real acc) { return fma(mul(dy[k], gain[k]), u[k], acc); });
  const Real nc =
      mutant("norm-gradient-forgets-the-mean") ? Real(0) : neg(div(dot, static_cast<Real>(n)));
  for (std::int64_t k = 0; k < n; ++k) dx[k] = mul(rstd, fma(nc, u[k], mul(dy[k], gain[k])));
}

template <class Real>
std::vector<Real> gain_gradient(const Matrix<Real>& dy, const Matrix<Real>& u, Mutant mutant) {
  const auto step = [&](std::int64_t i, std::int64_t k, Real p) {
    return fma(dy.row(i)[k], u.row(i)[k], p);
  };
  if (!mutant("norm-gain-gradient-is-one-chain")) return column_sums<Real>(dy.rows, dy.cols, step);
  std::vector<Real> chain(dy.cols);
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    for (std::int64_t k = 0; k < dy.cols; ++k) chain[k] = step(i, k, chain[k]);
  }
  return chain;
}

template <class Precision, class Real = typename Precision::Real>
void rms_norm(const PackedBatch& pack, const Matrix<Real>& x, const Real* gain, Real eps,
              Matrix<Real>& y, Matrix<Real>& rstd, Mutant mutant) {
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      rstd.values[i] = rms_norm_row<Precision>(x.cols, x.row(i), gain, eps, y.row(i), mutant);
    }
  }
}

template <class Precision, class Real = typename Precision::Real>
Matrix<Real> rms_norm_gradient(const PackedBatch& pack, const Matrix<Real>& x,
                               const Matrix<Real>& rstd, const Real* gain, const Matrix<Real>& dy,
                               std::vector<Real>& dgain, Mutant mutant) {
  Matrix<Real> dx(x.rows, x.cols), u(x.rows, x.cols);
  for (const Piece& run : pack.runs) {
    for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
      rms_norm_row_gradient<Precision>(x.cols, x.row(i), rstd.values[i], gain, dy.row(i), u.row(i),
                                       dx.row(i), mutant);
    }
  }
  dgain = gain_gradient(dy, u, mutant);
  return dx;
}

}  // namespace lockstep::oracle
