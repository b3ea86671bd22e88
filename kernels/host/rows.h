// Rows in storage and rows in arithmetic.
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"

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

}  // namespace lockstep
