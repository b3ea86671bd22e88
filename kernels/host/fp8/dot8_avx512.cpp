// DOT8 with AVX-512. Products of codes are exact in fp32. An accumulator that starts at 2^(E + 10)
// has the grid 2^(E - 13) while it grows to less than its double, so fma toward zero drops of each
// magnitude what FDA32 drops. One accumulator takes all magnitudes, one those of negative terms.
#include "kernels/host/fp8/dot8.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx2,fma")))

namespace lockstep {
namespace {

constexpr int kPlace = 3 * kDot8Lanes;  // |b|, |b| where b is negative, |b| where it is not.
constexpr int kBlock = 4;               // Rows side by side, to hide the latency of fma.

LOCKSTEP_AVX512 inline void expand(const Dot8Slice& slice, float* values) {
  const __m512i bias = _mm512_set1_epi32(static_cast<int>(slice.bias));
  const __m512i one = _mm512_set1_epi32(1 << 23), next = _mm512_add_epi32(bias, one);
  const __m128i shift = _mm_cvtsi32_si128(slice.shift);
  for (int k = 0; k < slice.groups * kFp8Group; ++k) {
    const __m512i code = _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(slice.codes + k * kDot8Lanes)));
    const __m512i low = _mm512_sll_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7f)), shift);
    const __mmask16 subnormal = _mm512_cmplt_epi32_mask(low, one);
    const __m512 normal = _mm512_castsi512_ps(_mm512_add_epi32(low, bias));
    const __m512 magnitude =
        _mm512_mask_sub_ps(normal, subnormal, _mm512_castsi512_ps(_mm512_add_epi32(low, next)),
                           _mm512_castsi512_ps(next));
    const __mmask16 negative = _mm512_test_epi32_mask(code, _mm512_set1_epi32(0x80));
    _mm512_store_ps(values + k * kPlace, magnitude);
    _mm512_store_ps(values + k * kPlace + 16, _mm512_maskz_mov_ps(negative, magnitude));
    _mm512_store_ps(values + k * kPlace + 32,
                    _mm512_maskz_mov_ps(static_cast<__mmask16>(~negative), magnitude));
  }
}

// The largest exponent of a group's products, by lane.
LOCKSTEP_AVX512 inline __m512i largest(const std::int8_t* a, const std::int8_t* b) {
  __m512i top = _mm512_set1_epi8(-128);
#pragma GCC unroll 8
  for (int q = 0; q < kFp8Group / 4; ++q) {
    int word;
    __builtin_memcpy(&word, a + 4 * q, 4);
    top = _mm512_max_epi8(
        top, _mm512_adds_epi8(_mm512_set1_epi32(word), _mm512_loadu_si512(b + 64 * q)));
  }
  top = _mm512_max_epi8(top, _mm512_srli_epi32(top, 16));
  top = _mm512_max_epi8(top, _mm512_srli_epi32(top, 8));
  return _mm512_srai_epi32(_mm512_slli_epi32(top, 24), 24);
}

// Runs while the processor rounds toward zero. Every result but the sums of magnitudes is exact.
template <int kCount>
LOCKSTEP_AVX512 inline void block(const Dot8Slice& slice, const float* values, const Dot8Rows& a,
                                  std::int64_t first, float* p, std::uint16_t* met) {
  __m512 sum[kCount], all[kCount], minus[kCount], start[kCount];
  __mmask16 special[kCount];
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) sum[r] = _mm512_setzero_ps(), special[r] = 0;
  for (int g = 0; g < slice.groups; ++g) {
    const std::int64_t row = first * a.stride + g * kFp8Group;
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) {
      const __m512i products =
          largest(a.exponents + row + r * a.stride, slice.exponents + g * kFp8Group * kDot8Lanes);
      special[r] |= _mm512_cmpge_epi32_mask(products, _mm512_set1_epi32(kDot8NoNumber));
      const __m512i before = _mm512_castps_si512(sum[r]);
      const __m512i field = _mm512_and_si512(_mm512_srli_epi32(before, 23), _mm512_set1_epi32(255));
      const __m512i e = _mm512_max_epi32(products, _mm512_sub_epi32(field, _mm512_set1_epi32(127)));
      start[r] = _mm512_castsi512_ps(
          _mm512_slli_epi32(_mm512_add_epi32(e, _mm512_set1_epi32(127 + 10)), 23));
      const __m512 magnitude =
          _mm512_castsi512_ps(_mm512_and_si512(before, _mm512_set1_epi32(0x7fffffff)));
      all[r] = _mm512_add_ps(start[r], magnitude);
      minus[r] = _mm512_mask_add_ps(
          start[r], _mm512_cmplt_epi32_mask(before, _mm512_setzero_si512()), start[r], magnitude);
    }
    const float* place = values + g * kFp8Group * kPlace;
    for (int k = 0; k < kFp8Group; ++k, place += kPlace) {
      const __m512 b = _mm512_load_ps(place);
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) {
        const std::int64_t at = row + r * a.stride + k;
        const __m512 x = _mm512_set1_ps(a.magnitudes[at]);
        all[r] = _mm512_fmadd_ps(x, b, all[r]);
        minus[r] = _mm512_fmadd_ps(x,
                                   _mm512_load_ps(reinterpret_cast<const char*>(place) +
                                                  static_cast<std::ptrdiff_t>(a.offsets[at])),
                                   minus[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kCount; ++r) {
      const __m512 d =
          _mm512_add_ps(_mm512_fnmadd_ps(_mm512_set1_ps(2.0f), minus[r], all[r]), start[r]);
      sum[r] = _mm512_castsi512_ps(_mm512_and_si512(
          _mm512_castps_si512(d), _mm512_set1_epi32(static_cast<int>(0xfffffc00u))));
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kCount; ++r) {
    _mm512_storeu_ps(p + (first + r) * kDot8Lanes, sum[r]);
    met[first + r] = special[r];
  }
}

// Not inlined: no arithmetic may move over the change of the rounding.
LOCKSTEP_AVX512 __attribute__((noinline)) void toward_zero(const Dot8Slice& slice, int rows,
                                                           const Dot8Rows& a, float* p,
                                                           std::uint16_t* met) {
  alignas(64) float values[kFp8Run * kPlace];
  expand(slice, values);
  int i = 0;
  for (; i + kBlock <= rows; i += kBlock) block<kBlock>(slice, values, a, i, p, met);
  for (; i < rows; ++i) block<1>(slice, values, a, i, p, met);
}

}  // namespace

void dot8_avx512(const Dot8Slice& slice, int rows, const Dot8Rows& a, float* p,
                 std::uint16_t* met) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | _MM_ROUND_TOWARD_ZERO);
  toward_zero(slice, rows, a, p, met);
  _mm_setcsr(before);
}

}  // namespace lockstep
#endif
