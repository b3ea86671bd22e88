// The AVX-512 form of DOT8: vectors of 16 columns.
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

// The largest exponents of one row's products, by column.
LOCKSTEP_AVX512_INLINE __m512i largest(const std::int8_t* ea, const std::int8_t* eb) {
  __m512i most = _mm512_set1_epi8(INT8_MIN);
  for (int k = 0; k < kFp8Group; ++k) {
    const __m512i right = _mm512_loadu_si512(eb + kFp8Columns * k);
    most = _mm512_max_epi8(most, _mm512_add_epi8(_mm512_set1_epi8(ea[k]), right));
  }
  return most;
}

// One step of 32 products of some rows with 16 columns a vector, continued from part: about eight
// sums, so that no addition waits for the one before. Rows of a lie `pitch` apart.
template <int kRows, int kVectors>
LOCKSTEP_AVX512_INLINE void step(const float* a, const std::int8_t* ea, std::int64_t pitch,
                                 const float* up, const float* down, const std::int8_t* eb,
                                 __m512 (&part)[kRows][kVectors]) {
  const __m512 zero = _mm512_setzero_ps();
  __m512 above[kRows][kVectors], below[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    alignas(64) std::int8_t products[kFp8Columns];
    _mm512_store_si512(products, largest(ea + r * pitch, eb));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 start = start_of(products + 16 * v, part[r][v]);
      const __m512 lowered = _mm512_sub_ps(zero, part[r][v]);
      above[r][v] = _mm512_add_round_ps(start, _mm512_max_ps(part[r][v], zero), kTowardZero);
      below[r][v] = _mm512_add_round_ps(start, _mm512_max_ps(lowered, zero), kTowardZero);
    }
  }
  for (int k = 0; k < kFp8Group; ++k) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float left = a[r * pitch + k];
      const __m512 x = _mm512_abs_ps(_mm512_set1_ps(left));
      const auto [same, other] = fp8_sides(left, up + kFp8Columns * k, down + kFp8Columns * k);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        above[r][v] =
            _mm512_fmadd_round_ps(x, _mm512_loadu_ps(same + 16 * v), above[r][v], kTowardZero);
        below[r][v] =
            _mm512_fmadd_round_ps(x, _mm512_loadu_ps(other + 16 * v), below[r][v], kTowardZero);
      }
    }
  }
  const __m512i kept = _mm512_set1_epi32(static_cast<int>(0xfffffc00u));
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512i difference = _mm512_castps_si512(_mm512_sub_ps(above[r][v], below[r][v]));
      part[r][v] = _mm512_castsi512_ps(_mm512_and_si512(difference, kept));
    }
  }
}

template <int kRows, int kVectors>
LOCKSTEP_AVX512_INLINE void rows_from(const Fp8Tile& tile, std::int64_t first) {
  const float* a = tile.a + first * tile.pitch;
  const std::int8_t* ea = tile.a_exponents + first * tile.pitch;
  __m512 part[kRows][kVectors] = {};
  for (std::int64_t k = 0; k < tile.terms; k += kFp8Group) {
    step<kRows, kVectors>(a + k, ea + k, tile.pitch, tile.up + k * kFp8Columns,
                          tile.down + k * kFp8Columns, tile.b_exponents + k * kFp8Columns, part);
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      _mm512_storeu_ps(tile.part + (first + r) * kFp8Columns + 16 * v, part[r][v]);
  }
}

template <int kRows, int kVectors>
LOCKSTEP_AVX512_INLINE void all_rows(const Fp8Tile& tile) {
  std::int64_t i = 0;
  for (; i + kRows <= tile.rows; i += kRows) rows_from<kRows, kVectors>(tile, i);
  for (; i < tile.rows; ++i) rows_from<1, kVectors>(tile, i);
}

}  // namespace

LOCKSTEP_AVX512 void fp8_run_avx512(const Fp8Tile& tile) {
  if (tile.columns <= 16) return all_rows<4, 1>(tile);
  if (tile.columns <= 32) return all_rows<2, 2>(tile);
  all_rows<1, 4>(tile);
}

}  // namespace lockstep::oracle
#else
namespace lockstep::oracle {
void fp8_run_avx512(const Fp8Tile&) { throw std::logic_error("no AVX-512 here"); }
}  // namespace lockstep::oracle
#endif
