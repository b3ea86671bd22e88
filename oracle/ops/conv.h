// Causal depthwise convolution and SiLU, one document after the other (arithmetic.md 2.7).
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "oracle/arithmetic/reductions.h"

namespace lockstep::oracle {

// The convolved columns, from `offset` on: x, B and C of the stored in_proj product.
template <class Real>
struct ConvInput {
  const Matrix<Real>& from;
  std::int64_t offset;
  const Real* row(std::int64_t i) const { return from.row(i) + offset; }
};

template <class Real>
class Conv {
 public:
  Conv(const Real* weight, const Real* bias, std::int64_t channels, std::int64_t width,
       Mutant mutant)
      : taps_(transposed(weight, channels, width, width)),
        bias_(bias, bias + channels),
        mutant_(mutant) {
    if (mutant("conv-forgets-its-bias")) std::fill(bias_.begin(), bias_.end(), Real(0));
    if (mutant("conv-turns-its-taps")) std::reverse(taps_.values.begin(), taps_.values.end());
  }

  template <class Precision>
  void forward(const PackedBatch& pack, ConvInput<Real> x, Matrix<Real>& y) const {
    for (const Piece& document : pieces(pack)) {
      for (std::int64_t t = 0; t < document.rows; ++t) {
        Real* to = y.row(document.first + t);
        before_silu(x, document, t, to);
        for (std::int64_t c = 0; c < channels(); ++c) to[c] = Precision::st(silu(to[c]));
      }
    }
  }

  // Writes dx into the columns from `offset` on, and the gradients of weight and bias.
  template <class Precision>
  void backward(const PackedBatch& pack, ConvInput<Real> x, const Matrix<Real>& dy,
                Matrix<Real>& dx, std::vector<Real>& dweight, std::vector<Real>& dbias) const {
    const Matrix<Real> dpre = gradient_before_silu(pack, x, dy);
    for (const Piece& document : pieces(pack)) {
      for (std::int64_t t = 0; t < document.rows; ++t) {
        Real* to = dx.row(document.first + t) + x.offset;
        for (std::int64_t q = 0; q < width() && t + q < document.rows; ++q) {
          const Real* tap =
              taps_.row(mutant_("conv-gradient-turns-its-taps") ? q : width() - 1 - q);
          const Real* d = dpre.row(document.first + t + q);
          for (std::int64_t c = 0; c < channels(); ++c) to[c] = fma(tap[c], d[c], to[c]);
        }
        for (std::int64_t c = 0; c < channels(); ++c) to[c] = Precision::st(add(to[c], Real(0)));
      }
    }
    dbias = bias_gradient(dpre);
    dweight = weight_gradient(pack, x, dpre);
  }

 private:
  std::int64_t channels() const { return taps_.cols; }
  std::int64_t width() const { return taps_.rows; }
  const std::vector<Piece>& pieces(const PackedBatch& pack) const {
    return mutant_("conv-crosses-documents") ? pack.runs : pack.documents;
  }

  void before_silu(ConvInput<Real> x, const Piece& document, std::int64_t t, Real* a) const {
    std::copy(bias_.begin(), bias_.end(), a);
    for (std::int64_t u = std::max<std::int64_t>(0, width() - 1 - t); u < width(); ++u) {
      const Real* tap = taps_.row(u);
      const Real* from = x.row(document.first + t - width() + 1 + u);
      for (std::int64_t c = 0; c < channels(); ++c) a[c] = fma(tap[c], from[c], a[c]);
    }
    for (std::int64_t c = 0; c < channels(); ++c) a[c] = add(a[c], Real(0));
  }

  Matrix<Real> gradient_before_silu(const PackedBatch& pack, ConvInput<Real> x,
                                    const Matrix<Real>& dy) const {
    Matrix<Real> dpre(dy.rows, channels());
    const bool bare = mutant_("conv-gradient-forgets-silu");
    for (const Piece& document : pieces(pack)) {
      for (std::int64_t t = 0; t < document.rows; ++t) {
        Real* d = dpre.row(document.first + t);
        const Real* from = dy.row(document.first + t);
        before_silu(x, document, t, d);
        for (std::int64_t c = 0; c < channels(); ++c)
          d[c] = bare ? from[c] : mul(from[c], dsilu(d[c]));
      }
    }
    return dpre;
  }

  std::vector<Real> bias_gradient(const Matrix<Real>& dpre) const {
    const auto term = [&](std::int64_t i, std::int64_t c, Real p) {
      return add(p, dpre.row(i)[c]);
    };
    if (!mutant_("conv-bias-gradient-is-one-chain"))
      return column_sums<Real>(dpre.rows, channels(), term);
    std::vector<Real> chain(channels());
    for (std::int64_t i = 0; i < dpre.rows; ++i) {
      for (std::int64_t c = 0; c < channels(); ++c) chain[c] = term(i, c, chain[c]);
    }
    return chain;
  }

  // The terms of taps before the document and of rows of no document are +0, whatever dpre is.
  std::vector<Real> weight_gradient(const PackedBatch& pack, ConvInput<Real> x,
                                    const Matrix<Real>& dpre) const {
    std::vector<std::int64_t> start(dpre.rows, dpre.rows);
    for (const Piece& document : pieces(pack))
      std::fill_n(start.begin() + document.first, document.rows, document.first);
    std::vector<Real> gradient(channels() * width());
    for (std::int64_t u = 0; u < width(); ++u) {
      const std::vector<Real> sum =
          column_sums<Real>(dpre.rows, channels(), [&](std::int64_t i, std::int64_t c, Real p) {
            const std::int64_t tap = i - width() + 1 + u;
            return add(p, tap < start[i] ? Real(0) : mul(dpre.row(i)[c], x.row(tap)[c]));
          });
      for (std::int64_t c = 0; c < channels(); ++c) gradient[c * width() + u] = sum[c];
    }
    return gradient;
  }

  Matrix<Real> taps_;  // [width, channels]
  std::vector<Real> bias_;
  Mutant mutant_;
};

}  // namespace lockstep::oracle
