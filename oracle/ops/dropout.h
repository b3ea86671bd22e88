// Hidden dropout (arithmetic.md 0.4): a function of the document, the position in it, the step and
// the site.
#pragma once

#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "oracle/arithmetic/philox.h"
#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

struct DropoutKey {
  double p = 0;  // 0 in evaluations.
  std::int64_t seed = 0, step = 0;
};
enum class Site : std::uint32_t { mixer = 0, embedding = 1 };
struct DropoutPlace {
  std::uint32_t layer = 0;
  Site site = Site::mixer;
};

inline std::uint32_t dropout_threshold(double p) {
  return static_cast<std::uint32_t>(p * 4294967296.0);
}

inline PhiloxCounter dropout_block(const DropoutKey& key, DropoutPlace place,
                                   std::uint32_t document, std::uint32_t position,
                                   std::uint32_t channel_block) {
  const std::uint32_t site = place.layer * 4 + static_cast<std::uint32_t>(place.site);
  return philox(key.seed, {channel_block | site << 20, position, document,
                           static_cast<std::uint32_t>(key.step)});
}

// Applies dropout to the rows of documents, without rounding to storage. Other rows are +0.
template <class Real>
Matrix<Real> dropped(const PackedBatch& pack, const DropoutKey& given, DropoutPlace place,
                     const Matrix<Real>& x, Mutant mutant) {
  if (given.p == 0) return x;
  DropoutKey key = given;
  if (mutant("dropout-ignores-the-step")) key.step = 0;
  if (mutant("dropout-ignores-the-layer")) place.layer = 0;
  const std::uint32_t threshold = dropout_threshold(key.p);
  const Real scale = mutant("dropout-forgets-its-scale")
                         ? Real(1)
                         : div(Real(1), sub(Real(1), static_cast<Real>(key.p)));
  Matrix<Real> y(x.rows, x.cols);
  for (const Piece& document : pack.documents) {
    const std::uint32_t number = mutant("dropout-ignores-the-document") ? 0 : document.number;
    const std::int64_t origin = mutant("dropout-counts-rows-of-the-pack") ? document.first : 0;
    for (std::int64_t t = 0; t < document.rows; ++t) {
      const Real* from = x.row(document.first + t);
      Real* to = y.row(document.first + t);
      for (std::int64_t c = 0; c < x.cols; c += 4) {
        const PhiloxCounter words =
            dropout_block(key, place, number, static_cast<std::uint32_t>(origin + t),
                          static_cast<std::uint32_t>(c >> 2));
        for (std::int64_t k = c; k < c + 4 && k < x.cols; ++k) {
          to[k] = words[k & 3] >= threshold ? mul(from[k], scale) : Real(0);
        }
      }
    }
  }
  return y;
}

}  // namespace lockstep::oracle
