// Rows in storage and rows in arithmetic.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"
#include "kernels/core/fault.h"
#include "kernels/core/operand.h"

namespace lockstep {

// Every stored output of a row of no document is +0.
template <class T>
void store_zero(std::int64_t n, T* to) {
  for (std::int64_t e = 0; e < n; ++e) to[e] = st<T>(0.0f);
}
template <class T>
void load_row(std::int64_t n, const T* from, float* to) {
  for (std::int64_t e = 0; e < n; ++e) to[e] = load(from[e]);
}
template <class T>
void store_row(std::int64_t n, const float* from, T* to) {
  for (std::int64_t e = 0; e < n; ++e) to[e] = st<T>(from[e]);
}

// The microbatch's gradient joins the sum over microbatches, if there is one.
inline void add_to_total(const Out<float>& gradient, const Accum<float>& total) {
  if (!total) return;
  const bool overwrites = faulty("total-takes-the-last-gradient", false, true);
  for (std::int64_t i = 0; i < total.rows; ++i) {
    const float* g = gradient.row(i);
    float* acc = total.row(i);
    for (std::int64_t e = 0; e < total.cols; ++e) acc[e] = overwrites ? g[e] : add(acc[e], g[e]);
  }
}

}  // namespace lockstep
