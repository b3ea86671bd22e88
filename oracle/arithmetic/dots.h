// DOT of arithmetic.md 0.1 for many results at once. Vector lanes are independent results, each of
// which keeps its own order.
#pragma once

#include <algorithm>

#include "oracle/arithmetic/factors.h"
#include "oracle/arithmetic/fda16_fast.h"
#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

template <int kRows, int kCols, class Real>
LOCKSTEP_ORACLE_INLINE void dot_tile(std::int64_t terms, Left<Real> a, Right<Real> b, Real* c,
                                     std::int64_t stride, bool starts, bool ends) {
  Real acc[kRows][kCols];
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) acc[i][j] = starts ? Real(0) : c[i * stride + j];
  }
  for (std::int64_t k = 0; k < terms; ++k) {
    const Real* right = b.at + k * b.term;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Real left = a.at[i * a.row + k * a.term];
#pragma GCC unroll 16
      for (int j = 0; j < kCols; ++j) acc[i][j] = fma(left, right[j], acc[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) c[i * stride + j] = ends ? add(acc[i][j], Real(0)) : acc[i][j];
  }
}

template <int kRows, class Real>
void dot_rows(std::int64_t cols, std::int64_t terms, Left<Real> a, Right<Real> b, Real* c,
              std::int64_t stride, bool starts, bool ends) {
  std::int64_t j = 0;
  for (; j + 16 <= cols; j += 16) {
    dot_tile<kRows, 16>(terms, a, Right<Real>{b.at + j, b.term}, c + j, stride, starts, ends);
  }
  for (; j + 4 <= cols; j += 4) {
    dot_tile<kRows, 4>(terms, a, Right<Real>{b.at + j, b.term}, c + j, stride, starts, ends);
  }
  for (; j < cols; ++j)
    dot_tile<kRows, 1>(terms, a, Right<Real>{b.at + j, b.term}, c + j, stride, starts, ends);
}

// c[i][j] = DOT over k = 0..terms-1 asc of a(i, k), b(k, j), for i < rows, j < cols.
template <class Precision, class Real = typename Precision::Real>
[[gnu::noinline]] void dots(std::int64_t rows, std::int64_t cols, std::int64_t terms, Left<Real> a,
                            Right<Real> b, Real* c, std::int64_t stride, Chain chain) {
  if constexpr (Precision::kTensorCores) {
    fda16_dots(rows, cols, Terms{.last = terms}, terms, a, b, c, stride, chain);
    return;
  }
  const bool starts = chain == Chain::whole || chain == Chain::first;
  const bool ends = chain == Chain::whole || chain == Chain::last;
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    dot_rows<4>(cols, terms, Left<Real>{a.at + i * a.row, a.row, a.term}, b, c + i * stride, stride,
                starts, ends);
  }
  for (; i < rows; ++i) {
    dot_rows<1>(cols, terms, Left<Real>{a.at + i * a.row, a.row, a.term}, b, c + i * stride, stride,
                starts, ends);
  }
}

// c[i] continues over j = 0..seen+i-1 asc with a(i, j), b(j, .), as far as there are terms. No
// other a is read.
template <class Precision, class Real = typename Precision::Real>
void visible_dots(std::int64_t rows, std::int64_t cols, std::int64_t terms, std::int64_t seen,
                  const Real* a, std::int64_t a_stride, Right<Real> b, Real* c,
                  std::int64_t stride) {
  if constexpr (Precision::kTensorCores) {
    fda16_dots(rows, cols, Terms{.last = seen, .last_step = 1}, std::min(terms, seen + rows - 1),
               Left<Real>{a, a_stride, 1}, b, c, stride, Chain::middle);
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    dots<Precision>(1, cols, std::min(terms, seen + i), Left<Real>{a + i * a_stride, a_stride, 1},
                    b, c + i * stride, stride, Chain::middle);
  }
}

// c[i] continues over j = 0..i asc with a(i, j), b(j, .). Nothing above the diagonal is read.
template <class Precision, class Real = typename Precision::Real>
void lower_dots(std::int64_t n, std::int64_t cols, const Real* a, std::int64_t a_stride,
                Right<Real> b, Real* c, std::int64_t stride, Chain chain) {
  if constexpr (Precision::kTensorCores) {
    fda16_dots(n, cols, Terms{.last = 1, .last_step = 1}, n, Left<Real>{a, a_stride, 1}, b, c,
               stride, chain);
    return;
  }
  for (std::int64_t i0 = 0; i0 < n; i0 += 8) {
    const std::int64_t i1 = std::min(n, i0 + 8);
    dots<Precision>(i1 - i0, cols, i0, Left<Real>{a + i0 * a_stride, a_stride, 1}, b,
                    c + i0 * stride, stride, Chain::middle);
    for (std::int64_t i = i0; i < i1; ++i) {
      const Right<Real> from{b.at + i0 * b.term, b.term};
      dots<Precision>(1, cols, i - i0 + 1, Left<Real>{a + i * a_stride + i0, a_stride, 1}, from,
                      c + i * stride, stride, chain);
    }
  }
}

// c[j] continues over i = j..n-1 asc with a(i, j), b(i, .).
template <class Precision, class Real = typename Precision::Real>
void upper_dots(std::int64_t n, std::int64_t cols, const Real* a, std::int64_t a_stride,
                Right<Real> b, Real* c, std::int64_t stride, Chain chain) {
  if constexpr (Precision::kTensorCores) {
    fda16_dots(n, cols, Terms{.first_step = 1, .last = n}, n, Left<Real>{a, 1, a_stride}, b, c,
               stride, chain);
    return;
  }
  for (std::int64_t j0 = 0; j0 < n; j0 += 8) {
    const std::int64_t j1 = std::min(n, j0 + 8);
    for (std::int64_t j = j0; j < j1; ++j) {
      const Right<Real> from{b.at + j * b.term, b.term};
      dots<Precision>(1, cols, j1 - j, Left<Real>{a + j * a_stride + j, 1, a_stride}, from,
                      c + j * stride, stride, Chain::middle);
    }
    const Right<Real> from{b.at + j1 * b.term, b.term};
    dots<Precision>(j1 - j0, cols, n - j1, Left<Real>{a + j1 * a_stride + j0, 1, a_stride}, from,
                    c + j0 * stride, stride, chain);
  }
}

}  // namespace lockstep::oracle
