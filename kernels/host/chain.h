// CHAIN32 for many outputs at once: every output keeps its own accumulator and its own ascending
// order.
#pragma once

#include <cstdint>

#include "kernels/host/lanes.h"

namespace lockstep {

template <int kTiles>
LOCKSTEP_HD void chain_tile(std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                            std::int64_t b_pitch, float* c) {
  Lanes acc[kTiles];
#pragma GCC unroll 8
  for (int t = 0; t < kTiles; ++t) acc[t] = load_lanes(c + kLanes * t);
  for (std::int64_t e = 0; e < k; ++e) {
    const Lanes x = spread(a[e * a_stride]);
#pragma GCC unroll 8
    for (int t = 0; t < kTiles; ++t)
      acc[t] = fma(x, load_lanes(b + e * b_pitch + kLanes * t), acc[t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTiles; ++t) store_lanes(c + kLanes * t, acc[t]);
}

// c[j] = fma(a[e * a_stride], b[e * b_pitch + j], c[j]) for e = 0..k-1 asc, for every j < n.
// Continues from what c holds; the caller adds +0 after the last link.
inline void chain_row(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_pitch, float* c) {
  std::int64_t j = 0;
  for (; j + 64 <= n; j += 64) chain_tile<8>(k, a, a_stride, b + j, b_pitch, c + j);
  if (j + 32 <= n) chain_tile<4>(k, a, a_stride, b + j, b_pitch, c + j), j += 32;
  if (j + 16 <= n) chain_tile<2>(k, a, a_stride, b + j, b_pitch, c + j), j += 16;
  if (j + 8 <= n) chain_tile<1>(k, a, a_stride, b + j, b_pitch, c + j), j += 8;
  for (; j < n; ++j) {
    float s = c[j];
    for (std::int64_t e = 0; e < k; ++e) s = fma(a[e * a_stride], b[e * b_pitch + j], s);
    c[j] = s;
  }
}

inline void set_zero(std::int64_t n, float* c) {
  for (std::int64_t j = 0; j < n; ++j) c[j] = 0.0f;
}
// The end of every chain.
inline void add_zero(std::int64_t n, float* c) {
  for (std::int64_t j = 0; j < n; ++j) c[j] = add(c[j], 0.0f);
}
// A finished DOT for every j < n.
inline void dot_row(std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                    const float* b, std::int64_t b_pitch, float* c) {
  set_zero(n, c);
  chain_row(n, k, a, a_stride, b, b_pitch, c);
  add_zero(n, c);
}

// to[j * to_pitch + i] = from[i * from_pitch + j].
inline void transpose(std::int64_t rows, std::int64_t cols, const float* from,
                      std::int64_t from_pitch, float* to, std::int64_t to_pitch) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) to[j * to_pitch + i] = from[i * from_pitch + j];
  }
}

}  // namespace lockstep
