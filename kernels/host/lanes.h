// Eight independent outputs side by side. Each lane is the same IEEE operation as the scalar
// primitive.
#pragma once

#include "kernels/core/contract.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace lockstep {

inline constexpr int kLanes = 8;

#if defined(__AVX2__) && defined(__FMA__)
struct Lanes {
  __m256 v;
};
LOCKSTEP_HD Lanes load_lanes(const float* p) { return {_mm256_loadu_ps(p)}; }
LOCKSTEP_HD void store_lanes(float* p, Lanes x) { _mm256_storeu_ps(p, x.v); }
LOCKSTEP_HD Lanes spread(float x) { return {_mm256_set1_ps(x)}; }
LOCKSTEP_HD Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.v, b.v)}; }
LOCKSTEP_HD Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
#else
struct Lanes {
  float v[kLanes];
};
LOCKSTEP_HD Lanes load_lanes(const float* p) {
  Lanes x;
  for (int l = 0; l < kLanes; ++l) x.v[l] = p[l];
  return x;
}
LOCKSTEP_HD void store_lanes(float* p, Lanes x) {
  for (int l = 0; l < kLanes; ++l) p[l] = x.v[l];
}
LOCKSTEP_HD Lanes spread(float a) {
  Lanes x;
  for (int l = 0; l < kLanes; ++l) x.v[l] = a;
  return x;
}
LOCKSTEP_HD Lanes add(Lanes a, Lanes b) {
  for (int l = 0; l < kLanes; ++l) a.v[l] = add(a.v[l], b.v[l]);
  return a;
}
LOCKSTEP_HD Lanes fma(Lanes a, Lanes b, Lanes c) {
  for (int l = 0; l < kLanes; ++l) c.v[l] = fma(a.v[l], b.v[l], c.v[l]);
  return c;
}
#endif

}  // namespace lockstep
