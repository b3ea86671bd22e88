// Products with weights, arithmetic.md 2.4. Weights are stored [out, in].
#pragma once

#include "oracle/arithmetic/dots.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"

namespace lockstep::oracle {

template <class Precision, class Real>
void store(Real* values, std::int64_t n) {
  for (std::int64_t e = 0; e < n; ++e) values[e] = Precision::st(values[e]);
}

// The result that splitting the sum over `terms` would give: two sums from +0, then added.
template <class Precision, class Real>
void split_dots(std::int64_t rows, std::int64_t cols, std::int64_t terms, Left<Real> a,
                Right<Real> b, Real* c) {
  const std::int64_t half = terms / 2;
  Matrix<Real> second(rows, cols);
  dots<Precision>(rows, cols, half, a, b, c, cols, Chain::whole);
  dots<Precision>(rows, cols, terms - half, Left<Real>{a.at + half * a.term, a.row, a.term},
                  Right<Real>{b.at + half * b.term, b.term}, second.values.data(), cols,
                  Chain::whole);
  for (std::int64_t e = 0; e < rows * cols; ++e) c[e] = add(c[e], second.values[e]);
}

// y[i, :] = st(DOT of x[i, :] and the rows of b) for rows of documents.
template <class Precision, class Real>
void product(const PackedBatch& pack, const Matrix<Real>& x, Right<Real> b, Matrix<Real>& y,
             bool split) {
  for (const Piece& run : pack.runs) {
    const Left<Real> a{x.row(run.first), x.cols, 1};
    if (split) {
      split_dots<Precision>(run.rows, y.cols, x.cols, a, b, y.row(run.first));
    } else {
      dots<Precision>(run.rows, y.cols, x.cols, a, b, y.row(run.first), y.cols, Chain::whole);
    }
    store<Precision>(y.row(run.first), run.rows * y.cols);
  }
}

template <class Precision, class Real = typename Precision::Real>
void linear(const PackedBatch& pack, const Matrix<Real>& x, const Real* weight, Matrix<Real>& y,
            Mutant mutant) {
  const Matrix<Real> by_input = transposed(weight, y.cols, x.cols, x.cols);
  product<Precision>(pack, x, Right<Real>{by_input.values.data(), y.cols}, y,
                     mutant("linear-splits-its-sum"));
}

template <class Precision, class Real = typename Precision::Real>
Matrix<Real> linear_input_gradient(const PackedBatch& pack, const Matrix<Real>& dy,
                                   const Real* weight, std::int64_t in, Mutant mutant) {
  Matrix<Real> dx(dy.rows, in);
  product<Precision>(pack, dy, Right<Real>{weight, in}, dx,
                     mutant("linear-input-gradient-splits-its-sum"));
  return dx;
}

// Returns one sum over all physical rows.
template <class Precision, class Real = typename Precision::Real>
std::vector<Real> linear_weight_gradient(const PackedBatch& pack, const Matrix<Real>& dy,
                                         const Matrix<Real>& x, Mutant mutant) {
  std::vector<Real> dw(dy.cols * x.cols);
  const auto sum = [&](std::int64_t first, std::int64_t rows, Real* to) {
    dots<Precision>(dy.cols, x.cols, rows, Left<Real>{dy.row(first), 1, dy.cols},
                    Right<Real>{x.row(first), x.cols}, to, x.cols, Chain::whole);
  };
  if (mutant("linear-weight-gradient-sums-documents-apart")) {
    std::vector<Real> part(dw.size());
    for (const Piece& document : pack.documents) {
      sum(document.first, document.rows, part.data());
      for (std::size_t e = 0; e < dw.size(); ++e) dw[e] = add(dw[e], part[e]);
    }
    return dw;
  }
  const std::int64_t first = mutant("linear-weight-gradient-misses-the-first-row") ? 1 : 0;
  sum(first, dy.rows - first, dw.data());
  return dw;
}

}  // namespace lockstep::oracle
