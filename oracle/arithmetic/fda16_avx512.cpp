// The AVX-512 form of FDA16: one vector of 16 columns.
#include "oracle/arithmetic/fda16_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LOCKSTEP_AVX512_INLINE \
  static inline __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), always_inline))

namespace lockstep::oracle {

namespace {

// E of the columns; 0 where there is nothing to add.
LOCKSTEP_AVX512_INLINE __m512i largest_exponent(__m256i products, __m512 c) {
  const __m512i field =
      _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(c), 23), _mm512_set1_epi32(255));
  const __mmask16 zero = _mm512_cmp_ps_mask(c, _mm512_setzero_ps(), _CMP_EQ_OQ);
  __m512i exponent = _mm512_sub_epi32(field, _mm512_set1_epi32(127));
  exponent = _mm512_mask_mov_epi32(exponent, zero, _mm512_set1_epi32(kFda16Zero));
  exponent = _mm512_max_epi32(exponent, _mm512_cvtepi16_epi32(products));
  return _mm512_maskz_mov_epi32(_mm512_cmpge_epi32_mask(exponent, _mm512_set1_epi32(kFda16Nothing)),
                                exponent);
}

LOCKSTEP_AVX512_INLINE __m512 power_of_two(__m512i exponent) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(exponent, _mm512_set1_epi32(127)), 23));
}

LOCKSTEP_AVX512_INLINE __m512i cut(__m512 x, __m512 scale) {
  return _mm512_cvttps_epi32(_mm512_mul_ps(x, scale));
}

// A step of `count` products. Returns false, with c unchanged, where only the scalar form is exact.
LOCKSTEP_AVX512_INLINE bool step(const float* a, const std::int32_t* ea, const float* b,
                                 const std::int16_t* eb, int count, float* c) {
  __m256i most = _mm256_set1_epi16(INT16_MIN);
#pragma GCC unroll 16
  for (int k = 0; k < count; ++k) {
    const __m256i right = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(eb + 16 * k));
    most = _mm256_max_epi16(most, _mm256_add_epi16(_mm256_set1_epi32(ea[k]), right));
  }
  const __m512 start = _mm512_load_ps(c);
  const __m512i e = largest_exponent(most, start);
  const __mmask16 outside = _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(kFda16Highest)) |
                            _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(kFda16Lowest));
  if (__builtin_expect(outside != 0, 0)) return false;

  const __m512i grid = _mm512_set1_epi32(25);
  const __m512 scale = power_of_two(_mm512_sub_epi32(grid, e));
  __m512i even = cut(start, scale), odd = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int k = 0; k < count; ++k) {
    const __m512i term =
        cut(_mm512_mul_ps(_mm512_set1_ps(a[k]), _mm512_loadu_ps(b + 16 * k)), scale);
    if (k % 2 == 0) {
      even = _mm512_add_epi32(even, term);
    } else {
      odd = _mm512_add_epi32(odd, term);
    }
  }
  const __m512i sum = _mm512_add_epi32(even, odd);
  const __m512i overflow =
      _mm512_and_si512(_mm512_xor_si512(even, sum), _mm512_xor_si512(odd, sum));
  if (__builtin_expect(_mm512_movepi32_mask(overflow) != 0, 0)) return false;
  const __m512 rounded = _mm512_cvt_roundepi32_ps(sum, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  _mm512_store_ps(c, _mm512_mul_ps(rounded, power_of_two(_mm512_sub_epi32(e, grid))));
  return true;
}

}  // namespace

LOCKSTEP_AVX512 void fda16_tile_avx512(const Fda16Tile& tile) {
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
void fda16_tile_avx512(const Fda16Tile& tile) { fda16_tile_scalar(tile); }
}  // namespace lockstep::oracle
#endif
