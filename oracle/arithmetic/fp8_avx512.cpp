// The AVX-512 form of DOT8: four vectors of 16 columns.
#include <stdexcept>

#include "oracle/arithmetic/fp8_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LOCKSTEP_AVX512_INLINE \
  static inline __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"), always_inline))

namespace lockstep::oracle {

namespace {

constexpr int kTowardZero = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

// 2^(E+10) of 16 columns; E is 0 where there is nothing to add.
LOCKSTEP_AVX512_INLINE __m512 start_of(const std::int8_t* products, __m512 c) {
  const __m512i field =
      _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(c), 23), _mm512_set1_epi32(255));
  const __m512i of_c = _mm512_sub_epi32(field, _mm512_set1_epi32(127));  // -127 if c is zero.
  const __m512i of_products =
      _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(products)));
  __m512i e = _mm512_max_epi32(of_c, of_products);
  e = _mm512_maskz_mov_epi32(_mm512_cmpge_epi32_mask(e, _mm512_set1_epi32(kFp8Nothing)), e);
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127 + 10)), 23));
}

// One step of 32 products, continued from part[64]: eight sums, so that no addition waits for the
// one before.
LOCKSTEP_AVX512_INLINE void step(const float* a, const std::int8_t* ea, const float* up,
                                 const float* down, const std::int8_t* eb, __m512 (&part)[4]) {
  __m512i most = _mm512_set1_epi8(INT8_MIN);
  for (int k = 0; k < kFp8Group; ++k) {
    const __m512i right = _mm512_loadu_si512(eb + kFp8Columns * k);
    most = _mm512_max_epi8(most, _mm512_add_epi8(_mm512_set1_epi8(ea[k]), right));
  }
  alignas(64) std::int8_t products[kFp8Columns];
  _mm512_store_si512(products, most);
  const __m512 zero = _mm512_setzero_ps();
  __m512 above[4], below[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512 start = start_of(products + 16 * v, part[v]);
    const __m512 lowered = _mm512_sub_ps(zero, part[v]);
    above[v] = _mm512_add_round_ps(start, _mm512_max_ps(part[v], zero), kTowardZero);
    below[v] = _mm512_add_round_ps(start, _mm512_max_ps(lowered, zero), kTowardZero);
  }
  for (int k = 0; k < kFp8Group; ++k) {
    const bool negative = a[k] < 0;
    const __m512 x = _mm512_abs_ps(_mm512_set1_ps(a[k]));
    const float* same = (negative ? down : up) + kFp8Columns * k;
    const float* other = (negative ? up : down) + kFp8Columns * k;
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      above[v] = _mm512_fmadd_round_ps(x, _mm512_loadu_ps(same + 16 * v), above[v], kTowardZero);
      below[v] = _mm512_fmadd_round_ps(x, _mm512_loadu_ps(other + 16 * v), below[v], kTowardZero);
    }
  }
  const __m512i kept = _mm512_set1_epi32(static_cast<int>(0xfffffc00u));
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m512i difference = _mm512_castps_si512(_mm512_sub_ps(above[v], below[v]));
    part[v] = _mm512_castsi512_ps(_mm512_and_si512(difference, kept));
  }
}

}  // namespace

LOCKSTEP_AVX512 void fp8_run_avx512(const Fp8Tile& tile) {
  for (std::int64_t i = 0; i < tile.rows; ++i) {
    const float* a = tile.a + i * tile.pitch;
    const std::int8_t* ea = tile.a_exponents + i * tile.pitch;
    __m512 part[4] = {};
    for (std::int64_t k = 0; k < tile.terms; k += kFp8Group) {
      step(a + k, ea + k, tile.up + k * kFp8Columns, tile.down + k * kFp8Columns,
           tile.b_exponents + k * kFp8Columns, part);
    }
    for (int v = 0; v < 4; ++v) _mm512_storeu_ps(tile.part + i * kFp8Columns + 16 * v, part[v]);
  }
}

}  // namespace lockstep::oracle
#else
namespace lockstep::oracle {
void fp8_run_avx512(const Fp8Tile&) { throw std::logic_error("no AVX-512 here"); }
}  // namespace lockstep::oracle
#endif
