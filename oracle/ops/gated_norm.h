// Gated grouped RMSNorm, arithmetic.md 2.9: the norm comes after the gate.
#pragma once

#include "oracle/ops/rms_norm.h"

namespace lockstep::oracle {

// y is the scan's output, z the first columns of in_proj, rstd [T, groups].
template <class Real>
struct GatedNorm {
  const Matrix<Real>& y;
  const Matrix<Real>& in_proj;
  const Real* gain;
  std::int64_t groups;
  Real eps;

  std::int64_t width() const { return y.cols / groups; }
  const Real* z(std::int64_t i) const { return in_proj.row(i); }

  void gate(std::int64_t i, Real* u) const {
    for (std::int64_t k = 0; k < y.cols; ++k) u[k] = mul(y.row(i)[k], silu(z(i)[k]));
  }

  template <class Precision>
  void forward(const PackedBatch& pack, Matrix<Real>& out, Matrix<Real>& rstd,
               Mutant mutant) const {
    const std::int64_t parts = mutant("gated-norm-forgets-its-groups") ? 1 : groups,
                       n = y.cols / parts;
    const bool late = mutant("gated-norm-gates-after-the-norm");
    std::vector<Real> u(y.cols);
    for (const Piece& run : pack.runs) {
      for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
        gate(i, u.data());
        if (late) std::copy_n(y.row(i), y.cols, u.data());
        for (std::int64_t g = 0; g < parts; ++g) {
          rstd.row(i)[g] = rms_norm_row<Precision>(n, u.data() + g * n, gain + g * n, eps,
                                                   out.row(i) + g * n, mutant);
        }
        for (std::int64_t k = 0; k < y.cols && late; ++k) {
          out.row(i)[k] = Precision::st(mul(out.row(i)[k], silu(z(i)[k])));
        }
      }
    }
  }

  // Writes dy, and dz into the first columns of in_proj's gradient. Returns the gain's gradient.
  template <class Precision>
  std::vector<Real> backward(const PackedBatch& pack, const Matrix<Real>& rstd,
                             const Matrix<Real>& d_out, Matrix<Real>& dy, Matrix<Real>& d_in_proj,
                             Mutant mutant) const {
    const std::int64_t n = width();
    const bool linear = mutant("gated-norm-gradient-forgets-dsilu");
    Matrix<Real> normed(y.rows, y.cols);
    std::vector<Real> u(y.cols), du(y.cols);
    for (const Piece& run : pack.runs) {
      for (std::int64_t i = run.first; i < run.first + run.rows; ++i) {
        gate(i, u.data());
        for (std::int64_t g = 0; g < groups; ++g) {
          const std::int64_t at = g * n;
          rms_norm_row_gradient<Precision>(n, u.data() + at, rstd.row(i)[g], gain + at,
                                           d_out.row(i) + at, normed.row(i) + at, du.data() + at,
                                           mutant);
        }
        const Real *zi = z(i), *yi = y.row(i);
        Real *to = dy.row(i), *dz = d_in_proj.row(i);
        for (std::int64_t k = 0; k < y.cols; ++k) {
          to[k] = Precision::st(mul(du[k], silu(zi[k])));
          dz[k] = Precision::st(mul(mul(du[k], yi[k]), linear ? Real(1) : dsilu(zi[k])));
        }
      }
    }
    return gain_gradient(d_out, normed, mutant);
  }
};

}  // namespace lockstep::oracle
