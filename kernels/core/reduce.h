// The host side of the reductions of arithmetic.md 0.1: R128, R1024, column sums. Orders never
// depend on the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/core/contract.h"

namespace lockstep {

// The tree over 128 accumulators, of which those at and after `lanes` are +0 and are skipped: a
// zero addend may be.
inline float fold128(const float* acc, std::int64_t lanes = 128) {
  float t[32];
  std::int64_t live = (lanes + 3) / 4;
  for (std::int64_t l = 0; l < live; ++l) {
    t[l] = add(add(acc[4 * l], acc[4 * l + 1]), add(acc[4 * l + 2], acc[4 * l + 3]));
  }
  for (std::int64_t off = 16; off > 0; off /= 2) {
    for (std::int64_t l = 0; l < off && l + off < live; ++l) t[l] = add(t[l], t[l + off]);
    live = std::min(live, off);
  }
  return live > 0 ? t[0] : 0.0f;
}

// acc[e % kLanes] = step(e, acc[e % kLanes]) for e asc, from +0.
template <int kLanes, class Step>
LOCKSTEP_HD void accumulate_lanes(float* acc, std::int64_t n, const Step& step) {
  for (int l = 0; l < kLanes; ++l) acc[l] = 0.0f;
  std::int64_t e = 0;
  for (; e + kLanes <= n; e += kLanes) {
    for (int l = 0; l < kLanes; ++l) acc[l] = step(e + l, acc[l]);
  }
  for (std::int64_t l = 0; l < n - e; ++l) acc[l] = step(e + l, acc[l]);
}

// R128: step(e, acc) is add(acc, x_e) or fma(a_e, b_e, acc).
template <class Step>
float r128(std::int64_t n, const Step& step) {
  alignas(32) float acc[128];
  accumulate_lanes<128>(acc, n, step);
  return add(fold128(acc, std::min<std::int64_t>(n, 128)), 0.0f);
}

template <class Step>
float r1024(std::int64_t n, const Step& step) {
  alignas(32) float acc[1024];
  accumulate_lanes<1024>(acc, n, step);
  float s = fold128(acc);
  for (int w = 1; w < 8; ++w) s = add(s, fold128(acc + 128 * w));
  return add(s, 0.0f);
}

// The maximum; its order is free, and add(m, +0) hides the sign of a zero.
template <class Get>
float maximum(std::int64_t n, const Get& get) {
  if (n < 16) {
    float m = get(0);
    for (std::int64_t e = 1; e < n; ++e) m = max(m, get(e));
    return add(m, 0.0f);
  }
  float lane[16];
  for (int l = 0; l < 16; ++l) lane[l] = get(l);
  std::int64_t e = 16;
  for (; e + 16 <= n; e += 16) {
    for (int l = 0; l < 16; ++l) lane[l] = max(lane[l], get(e + l));
  }
  for (; e < n; ++e) lane[0] = max(lane[0], get(e));
  for (int l = 1; l < 16; ++l) lane[0] = max(lane[0], lane[l]);
  return add(lane[0], 0.0f);
}

// CS for all columns at once. add_row(i, p) sets p[c] = f(i, p[c]), or leaves p unchanged for a row
// of no document. Blocks have 32 physical rows, whatever the documents are.
template <class AddRow>
void column_sums(std::int64_t rows, std::int64_t cols, float* out, const AddRow& add_row,
                 std::int64_t block = 32) {
  std::vector<float> partial(cols);
  float* p = partial.data();
  std::fill_n(out, cols, 0.0f);
  for (std::int64_t first = 0; first < rows; first += block) {
    std::fill_n(p, cols, 0.0f);
    for (std::int64_t i = first; i < std::min(rows, first + block); ++i) add_row(i, p);
    for (std::int64_t c = 0; c < cols; ++c) out[c] = add(out[c], p[c]);
  }
  for (std::int64_t c = 0; c < cols; ++c) out[c] = add(out[c], 0.0f);
}

}  // namespace lockstep
