// The AVX2 form of DOT8: four vectors of eight columns at a time. AVX2 has no rounding of its own
// in an instruction, so the processor's rounding is toward zero while a run is computed.
#include <stdexcept>

#include "oracle/arithmetic/fp8_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX2 __attribute__((target("avx2,fma")))
#define LOCKSTEP_AVX2_INLINE static inline __attribute__((target("avx2,fma"), always_inline))

namespace lockstep::oracle {

namespace {

// 2^(E+10) of eight columns; E is 0 where there is nothing to add.
LOCKSTEP_AVX2_INLINE __m256 start_of(__m128i products, __m256 c) {
  const __m256i field =
      _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(c), 23), _mm256_set1_epi32(255));
  __m256i exponent = _mm256_sub_epi32(field, _mm256_set1_epi32(127));  // -127 if c is zero.
  exponent = _mm256_max_epi32(exponent, _mm256_cvtepi8_epi32(products));
  const __m256i nothing = _mm256_cmpgt_epi32(_mm256_set1_epi32(kFp8Nothing), exponent);
  exponent = _mm256_andnot_si256(nothing, exponent);
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127 + 10)), 23));
}

// One step of 32 products of 32 columns, continued from part: eight sums, so that no addition waits
// for the one before.
LOCKSTEP_AVX2_INLINE void step(const float* a, const std::int8_t* ea, const float* up,
                               const float* down, const std::int8_t* eb, __m256 (&part)[4]) {
  __m256i most = _mm256_set1_epi8(INT8_MIN);
  for (int k = 0; k < kFp8Group; ++k) {
    const __m256i right =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(eb + kFp8Columns * k));
    most = _mm256_max_epi8(most, _mm256_add_epi8(_mm256_set1_epi8(ea[k]), right));
  }
  const __m128i low = _mm256_castsi256_si128(most), high = _mm256_extracti128_si256(most, 1);
  const __m128i products[4] = {low, _mm_srli_si128(low, 8), high, _mm_srli_si128(high, 8)};
  const __m256 zero = _mm256_setzero_ps();
  __m256 above[4], below[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m256 start = start_of(products[v], part[v]);
    above[v] = _mm256_add_ps(start, _mm256_max_ps(part[v], zero));
    below[v] = _mm256_add_ps(start, _mm256_max_ps(_mm256_sub_ps(zero, part[v]), zero));
  }
  for (int k = 0; k < kFp8Group; ++k) {
    const __m256 x = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_set1_ps(a[k]));
    const auto [same, other] = fp8_sides(a[k], up + kFp8Columns * k, down + kFp8Columns * k);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      above[v] = _mm256_fmadd_ps(x, _mm256_loadu_ps(same + 8 * v), above[v]);
      below[v] = _mm256_fmadd_ps(x, _mm256_loadu_ps(other + 8 * v), below[v]);
    }
  }
  const __m256 kept = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xfffffc00u)));
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) part[v] = _mm256_and_ps(_mm256_sub_ps(above[v], below[v]), kept);
}

// Not inlined, so that nothing of it moves out from between the changes of the rounding.
LOCKSTEP_AVX2 __attribute__((noinline)) void run_toward_zero(const Fp8Tile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    for (int j = 0; j < tile.columns; j += 32) {
      __m256 part[4] = {};
      for (std::int64_t k = 0; k < tile.terms; k += kFp8Group) {
        const std::int64_t at = k * kFp8Columns + j;
        step(tile.a + i * tile.pitch + k, tile.a_exponents + i * tile.pitch + k, tile.up + at,
             tile.down + at, tile.b_exponents + at, part);
      }
      for (int v = 0; v < 4; ++v)
        _mm256_storeu_ps(tile.part + i * kFp8Columns + j + 8 * v, part[v]);
    }
  }
}

}  // namespace

LOCKSTEP_AVX2 void fp8_run_avx2(const Fp8Tile& tile) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | _MM_ROUND_TOWARD_ZERO);
  run_toward_zero(tile);
  _mm_setcsr(before);
}

}  // namespace lockstep::oracle
#else
namespace lockstep::oracle {
void fp8_run_avx2(const Fp8Tile&) { throw std::logic_error("no AVX2 here"); }
}  // namespace lockstep::oracle
#endif
