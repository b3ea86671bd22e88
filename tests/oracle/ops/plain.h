// The contract's sums written out, one number at a time, for tests that compare bits.
#pragma once

#include <algorithm>
#include <utility>

#include "oracle/arithmetic/fda16.h"
#include "oracle/arithmetic/matrix.h"
#include "oracle/arithmetic/pack.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {

using Rows = Matrix<float>;

// Numbers as they are stored.
template <class Numbers>
Rows filled(std::int64_t rows, std::int64_t cols, std::uint32_t seed, double size) {
  Draws numbers(seed);
  Rows matrix(rows, cols);
  for (float& value : matrix.values) value = Numbers::st(static_cast<float>(size * numbers.next()));
  return matrix;
}

using Factors = std::pair<float, float>;

// DOT of f(k) = (a, b) over the terms from `first` to `last`, continued from c. Groups of 16 count
// from term 0; places outside are zero.
template <class Numbers, class F>
float chain(std::int64_t first, std::int64_t last, F f, float c = 0.0f) {
  if constexpr (Numbers::kTensorCores) {
    for (std::int64_t k0 = 0; k0 < last; k0 += 16) {
      std::uint16_t left[16] = {}, right[16] = {};
      for (std::int64_t k = std::max(first, k0); k < std::min(last, k0 + 16); ++k) {
        const auto [a, b] = f(k);
        left[k - k0] = static_cast<std::uint16_t>(bits(a) >> 16);
        right[k - k0] = static_cast<std::uint16_t>(bits(b) >> 16);
      }
      c = fda16(left, right, 16, c);
    }
  } else {
    for (std::int64_t k = first; k < last; ++k) {
      const auto [a, b] = f(k);
      c = fma(a, b, c);
    }
  }
  return add(c, 0.0f);
}

}  // namespace lockstep::oracle
