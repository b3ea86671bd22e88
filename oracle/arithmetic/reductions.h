// The fixed sums of arithmetic.md 0.1. Each calls f(e, accumulator), which adds one term.
#pragma once

#include <algorithm>
#include <vector>

#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

template <class Real>
LOCKSTEP_ORACLE_INLINE Real tree128(const Real* acc) {
  alignas(64) Real t[32];
  for (int l = 0; l < 32; ++l)
    t[l] = add(add(acc[4 * l], acc[4 * l + 1]), add(acc[4 * l + 2], acc[4 * l + 3]));
  for (int l = 0; l < 16; ++l) t[l] = add(t[l], t[l + 16]);
  for (int l = 0; l < 8; ++l) t[l] = add(t[l], t[l + 8]);
  for (int off = 4; off > 0; off /= 2) {
    for (int l = 0; l < off; ++l) t[l] = add(t[l], t[l + off]);
  }
  return t[0];
}

template <int kWidth, class Real, class Step>
LOCKSTEP_ORACLE_INLINE void accumulate(std::int64_t n, Real* acc, Step step) {
  for (std::int64_t first = 0; first < n; first += kWidth) {
    const std::int64_t count = std::min<std::int64_t>(kWidth, n - first);
    for (std::int64_t l = 0; l < count; ++l) acc[l] = step(first + l, acc[l]);
  }
}

template <class Real, class Step>
LOCKSTEP_ORACLE_INLINE Real r128(std::int64_t n, Step step) {
  alignas(64) Real acc[128] = {};
  accumulate<128>(n, acc, step);
  return add(tree128(acc), Real(0));
}

template <class Real, class Step>
LOCKSTEP_ORACLE_INLINE Real r1024(std::int64_t n, Step step) {
  alignas(64) Real acc[1024] = {};
  accumulate<1024>(n, acc, step);
  Real s = tree128(acc);
  for (int w = 1; w < 8; ++w) s = add(s, tree128(acc + 128 * w));
  return add(s, Real(0));
}

// CS of every column; f(i, c, p) adds a term. Blocks of 32 start at multiples of the physical row.
template <class Real, class Step>
std::vector<Real> column_sums(std::int64_t rows, std::int64_t cols, Step step) {
  std::vector<Real> sums(cols), block(cols);
  for (std::int64_t first = 0; first < rows; first += 32) {
    std::fill(block.begin(), block.end(), Real(0));
    for (std::int64_t i = first; i < std::min(rows, first + 32); ++i) {
      Real* p = block.data();
      for (std::int64_t c = 0; c < cols; ++c) p[c] = step(i, c, p[c]);
    }
    for (std::int64_t c = 0; c < cols; ++c) sums[c] = add(sums[c], block[c]);
  }
  for (Real& sum : sums) sum = add(sum, Real(0));
  return sums;
}

}  // namespace lockstep::oracle
