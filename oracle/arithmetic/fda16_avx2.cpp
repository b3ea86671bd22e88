// The AVX2 form of FDA16: two vectors of eight columns.
#include "oracle/arithmetic/fda16_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX2 __attribute__((target("avx2")))
#define LOCKSTEP_AVX2_INLINE static inline __attribute__((target("avx2"), always_inline))

namespace lockstep::oracle {

namespace {

// E of eight columns; 0 where there is nothing to add.
LOCKSTEP_AVX2_INLINE __m256i largest_exponent(__m128i products, __m256 c) {
  const __m256i field =
      _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(c), 23), _mm256_set1_epi32(255));
  const __m256i zero = _mm256_castps_si256(_mm256_cmp_ps(c, _mm256_setzero_ps(), _CMP_EQ_OQ));
  const __m256i bias = _mm256_or_si256(zero, _mm256_set1_epi32(-127));
  const __m256i lowered = _mm256_and_si256(zero, _mm256_set1_epi32(kFda16Zero));
  __m256i exponent = _mm256_add_epi32(_mm256_add_epi32(field, bias), lowered);
  exponent = _mm256_max_epi32(exponent, _mm256_cvtepi16_epi32(products));
  const __m256i nothing = _mm256_cmpgt_epi32(_mm256_set1_epi32(kFda16Nothing), exponent);
  return _mm256_andnot_si256(nothing, exponent);
}

LOCKSTEP_AVX2_INLINE __m256i distance_from_middle(__m256i exponent) {
  return _mm256_abs_epi32(
      _mm256_sub_epi32(exponent, _mm256_set1_epi32((kFda16Highest + kFda16Lowest) / 2)));
}

LOCKSTEP_AVX2_INLINE __m256 power_of_two(__m256i exponent) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
}

LOCKSTEP_AVX2_INLINE __m256i cut(__m256 x, __m256 scale) {
  return _mm256_cvttps_epi32(_mm256_mul_ps(x, scale));
}

// Returns a negative lane where s + t does not fit 32 bits.
LOCKSTEP_AVX2_INLINE __m256i overflow(__m256i s, __m256i t, __m256i sum) {
  return _mm256_and_si256(_mm256_xor_si256(s, sum), _mm256_xor_si256(t, sum));
}

// Converts with rounding toward zero. If a magnitude has more than 24 bits, the first bit that fp32
// drops is cleared, with some after it, so that rounding to nearest goes down.
LOCKSTEP_AVX2_INLINE __m256 toward_zero(__m256i sum) {
  __m256i magnitude = _mm256_abs_epi32(sum);
  magnitude = _mm256_andnot_si256(_mm256_srli_epi32(magnitude, 24), magnitude);
  const __m256 sign = _mm256_castsi256_ps(_mm256_and_si256(sum, _mm256_set1_epi32(INT32_MIN)));
  return _mm256_or_ps(_mm256_cvtepi32_ps(magnitude), sign);
}

LOCKSTEP_AVX2_INLINE __m256i exponents(const std::int16_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// A step of `count` products. Returns false, with c unchanged, where only the scalar form is exact.
LOCKSTEP_AVX2_INLINE bool step(const float* a, const std::int32_t* ea, const float* b,
                               const std::int16_t* eb, int count, float* c) {
  __m256i most = _mm256_add_epi16(_mm256_set1_epi32(ea[0]), exponents(eb));
#pragma GCC unroll 16
  for (int k = 1; k < count; ++k) {
    most =
        _mm256_max_epi16(most, _mm256_add_epi16(_mm256_set1_epi32(ea[k]), exponents(eb + 16 * k)));
  }
  const __m256 c0 = _mm256_load_ps(c), c1 = _mm256_load_ps(c + 8);
  const __m256i e0 = largest_exponent(_mm256_castsi256_si128(most), c0);
  const __m256i e1 = largest_exponent(_mm256_extracti128_si256(most, 1), c1);
  const __m256i far = _mm256_max_epi32(distance_from_middle(e0), distance_from_middle(e1));
  const __m256i outside =
      _mm256_cmpgt_epi32(far, _mm256_set1_epi32((kFda16Highest - kFda16Lowest) / 2));
  if (__builtin_expect(!_mm256_testz_si256(outside, outside), 0)) return false;

  const __m256i grid = _mm256_set1_epi32(25);
  const __m256 scale0 = power_of_two(_mm256_sub_epi32(grid, e0)),
               scale1 = power_of_two(_mm256_sub_epi32(grid, e1));
  __m256i even0 = cut(c0, scale0), even1 = cut(c1, scale1);
  __m256i odd0 = _mm256_setzero_si256(), odd1 = odd0;
#pragma GCC unroll 16
  for (int k = 0; k < count; ++k) {
    const __m256 x = _mm256_set1_ps(a[k]);
    const __m256i t0 = cut(_mm256_mul_ps(x, _mm256_loadu_ps(b + 16 * k)), scale0);
    const __m256i t1 = cut(_mm256_mul_ps(x, _mm256_loadu_ps(b + 16 * k + 8)), scale1);
    if (k % 2 == 0) {
      even0 = _mm256_add_epi32(even0, t0);
      even1 = _mm256_add_epi32(even1, t1);
    } else {
      odd0 = _mm256_add_epi32(odd0, t0);
      odd1 = _mm256_add_epi32(odd1, t1);
    }
  }
  const __m256i sum0 = _mm256_add_epi32(even0, odd0), sum1 = _mm256_add_epi32(even1, odd1);
  const __m256i large = _mm256_or_si256(overflow(even0, odd0, sum0), overflow(even1, odd1, sum1));
  if (__builtin_expect(_mm256_movemask_ps(_mm256_castsi256_ps(large)) != 0, 0)) return false;
  _mm256_store_ps(c, _mm256_mul_ps(toward_zero(sum0), power_of_two(_mm256_sub_epi32(e0, grid))));
  _mm256_store_ps(c + 8,
                  _mm256_mul_ps(toward_zero(sum1), power_of_two(_mm256_sub_epi32(e1, grid))));
  return true;
}

}  // namespace

LOCKSTEP_AVX2 void fda16_tile_avx2(const Fda16Tile& tile) {
  for (std::int64_t k0 = 0; k0 < tile.depth; k0 += 16) {
    for (std::int64_t i = 0; i < tile.rows; ++i) {
      const std::int64_t k = tile.first[i] > k0 ? tile.first[i] : k0;
      const std::int64_t end = tile.last[i] < k0 + 16 ? tile.last[i] : k0 + 16;
      if (k >= end) continue;
      const float *a = tile.a + i * tile.depth + k, *b = tile.b + k * kTileColumns;
      const std::int32_t* ea = tile.a_exponents + i * tile.depth + k;
      const std::int16_t* eb = tile.b_exponents + k * kTileColumns;
      const int count = static_cast<int>(end - k);
      float* c = tile.c + i * kTileColumns;
      const bool done = count == 16 ? step(a, ea, b, eb, 16, c) : step(a, ea, b, eb, count, c);
      if (!done) fda16_step_scalar(a, b, count, c);
    }
  }
}

}  // namespace lockstep::oracle
#else
namespace lockstep::oracle {
void fda16_tile_avx2(const Fda16Tile& tile) { fda16_tile_scalar(tile); }
}  // namespace lockstep::oracle
#endif
