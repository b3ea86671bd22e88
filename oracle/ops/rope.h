// Rotary position embedding (arithmetic.md 2.5): half-split, positions from the document's first
// row.
#pragma once

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"

namespace lockstep::oracle {

template <class Real>
struct RopeTable {
  Matrix<Real> cosine, sine;  // [position, head_dim / 2]
};

template <class Real>
RopeTable<Real> make_rope_table(std::int64_t positions, std::int64_t head_dim, double base) {
  const std::int64_t half = head_dim / 2;
  RopeTable<Real> table{Matrix<Real>(positions, half), Matrix<Real>(positions, half)};
  const Real c = div(mul(Real(-2), log(static_cast<Real>(base))), static_cast<Real>(head_dim));
  for (std::int64_t i = 0; i < half; ++i) {
    const Real f = expn(mul(c, static_cast<Real>(i)));
    for (std::int64_t p = 0; p < positions; ++p) {
      sincos(mul(static_cast<Real>(p), f), table.sine.row(p)[i], table.cosine.row(p)[i]);
    }
  }
  return table;
}

// Rotates the first `heads` heads of every row in place: queries and keys, which precede the
// values. The backward pass rotates by the negative sine.
template <class Precision, class Real = typename Precision::Real>
void rope(const PackedBatch& pack, const RopeTable<Real>& table, std::int64_t heads,
          Matrix<Real>& x, bool backward, Mutant mutant) {
  const std::int64_t half = table.sine.cols;
  if (mutant("rope-swaps-the-sine") || mutant("rope-gradient-turns-forwards")) {
    backward = mutant("rope-swaps-the-sine") && !backward;
  }
  for (const Piece& document :
       mutant("rope-positions-run-through-the-pack") ? pack.runs : pack.documents) {
    for (std::int64_t t = 0; t < document.rows; ++t) {
      const Real* cosine = table.cosine.row(t);
      const Real* sine = table.sine.row(t);
      for (std::int64_t h = 0; h < heads; ++h) {
        Real* low = x.row(document.first + t) + h * 2 * half;
        Real* high = low + half;
        for (std::int64_t i = 0; i < half; ++i) {
          const Real a = low[i], b = high[i], cs = cosine[i],
                     sn = backward ? neg(sine[i]) : sine[i];
          low[i] = Precision::st(fma(a, cs, neg(mul(b, sn))));
          high[i] = Precision::st(fma(a, sn, mul(b, cs)));
        }
      }
    }
  }
}

}  // namespace lockstep::oracle
