// Embedding, arithmetic.md 2.1.
#pragma once

#include <algorithm>

#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

template <class Real>
Matrix<Real> embedding_rows(const PackedBatch& pack, const Real* weight, std::int64_t d,
                            Mutant mutant) {
  Matrix<Real> x(pack.rows, d);
  const std::int64_t shift = mutant("embedding-takes-the-token-before") ? 1 : 0;
  for (const Piece& run : pack.runs) {
    for (std::int64_t t = 0; t < run.rows; ++t) {
      const std::int32_t token = pack.tokens[run.first + (t < shift ? t : t - shift)];
      std::copy_n(weight + token * d, d, x.row(run.first + t));
    }
  }
  return x;
}

// One chain per word of the vocabulary, over its rows in ascending order.
template <class Real>
std::vector<Real> embedding_gradient(const PackedBatch& pack, const Matrix<Real>& dx,
                                     std::int64_t vocab, Mutant mutant) {
  const std::int64_t d = dx.cols;
  std::vector<Real> g(vocab * d);
  for (std::int64_t r = 0; r < pack.rows; ++r) {
    const std::int64_t i = mutant("embedding-gradient-sums-upwards") ? pack.rows - 1 - r : r;
    if (pack.tokens[i] < 0) continue;
    Real* sum = g.data() + pack.tokens[i] * d;
    const Real* term = dx.row(i);
    if (mutant("embedding-gradient-forgets-repeated-tokens")) std::fill_n(sum, d, Real(0));
    for (std::int64_t k = 0; k < d; ++k) sum[k] = add(sum[k], term[k]);
  }
  for (Real& value : g) value = add(value, Real(0));
  return g;
}

}  // namespace lockstep::oracle
