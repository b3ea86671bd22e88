// DOT8 with AVX2: the form of dot8_avx512.cpp on two halves of 8 lanes.
#include "kernels/host/fp8/dot8.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX2 __attribute__((target("avx2,fma")))

namespace lockstep {
namespace {

constexpr int kPlace = 3 * kDot8Lanes;  // |b|, |b| where b is negative, |b| where it is not.

LOCKSTEP_AVX2 inline void expand(const Dot8Slice& slice, float* values) {
  const __m256i bias = _mm256_set1_epi32(static_cast<int>(slice.bias));
  const __m256i one = _mm256_set1_epi32(1 << 23), next = _mm256_add_epi32(bias, one);
  const __m128i shift = _mm_cvtsi32_si128(slice.shift);
  for (int h = 0; h < slice.groups * kFp8Group * 2; ++h) {
    const __m256i code = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(slice.codes + h * 8)));
    const __m256i low = _mm256_sll_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)), shift);
    const __m256 normal = _mm256_castsi256_ps(_mm256_add_epi32(low, bias));
    const __m256 subnormal =
        _mm256_sub_ps(_mm256_castsi256_ps(_mm256_add_epi32(low, next)), _mm256_castsi256_ps(next));
    const __m256 magnitude =
        _mm256_blendv_ps(normal, subnormal, _mm256_castsi256_ps(_mm256_cmpgt_epi32(one, low)));
    const __m256 negative = _mm256_castsi256_ps(_mm256_cmpgt_epi32(code, _mm256_set1_epi32(0x7f)));
    float* place = values + h / 2 * kPlace + h % 2 * 8;
    _mm256_store_ps(place, magnitude);
    _mm256_store_ps(place + 16, _mm256_and_ps(negative, magnitude));
    _mm256_store_ps(place + 32, _mm256_andnot_ps(negative, magnitude));
  }
}

// The largest exponent of a group's products, by lane.
LOCKSTEP_AVX2 inline __m256i largest(const std::int8_t* a, const std::int8_t* b) {
  __m256i top = _mm256_set1_epi8(-128);
#pragma GCC unroll 8
  for (int q = 0; q < kFp8Group / 4; ++q) {
    int word;
    __builtin_memcpy(&word, a + 4 * q, 4);
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + 64 * q));
    top = _mm256_max_epi8(top, _mm256_adds_epi8(_mm256_set1_epi32(word), y));
  }
  top = _mm256_max_epi8(top, _mm256_srli_epi32(top, 16));
  top = _mm256_max_epi8(top, _mm256_srli_epi32(top, 8));
  return _mm256_srai_epi32(_mm256_slli_epi32(top, 24), 24);
}

// Eight chains of a row.
struct Half {
  __m256 sum, all, minus, start;
  __m256i special;
};
LOCKSTEP_AVX2 inline void begin(Half& h, __m256i products) {
  h.special = _mm256_or_si256(h.special,
                              _mm256_cmpgt_epi32(products, _mm256_set1_epi32(kDot8NoNumber - 1)));
  const __m256i before = _mm256_castps_si256(h.sum);
  const __m256i field = _mm256_and_si256(_mm256_srli_epi32(before, 23), _mm256_set1_epi32(255));
  const __m256i e = _mm256_max_epi32(products, _mm256_sub_epi32(field, _mm256_set1_epi32(127)));
  h.start =
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127 + 10)), 23));
  const __m256 magnitude =
      _mm256_castsi256_ps(_mm256_and_si256(before, _mm256_set1_epi32(0x7fffffff)));
  const __m256 negative = _mm256_castsi256_ps(_mm256_srai_epi32(before, 31));
  h.all = _mm256_add_ps(h.start, magnitude);
  h.minus = _mm256_add_ps(h.start, _mm256_and_ps(negative, magnitude));
}
LOCKSTEP_AVX2 inline void finish(Half& h) {
  const __m256 d = _mm256_add_ps(_mm256_fnmadd_ps(_mm256_set1_ps(2.0f), h.minus, h.all), h.start);
  const __m256i kept = _mm256_set1_epi32(static_cast<int>(0xfffffc00u));
  h.sum = _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(d), kept));
}
LOCKSTEP_AVX2 inline const float* behind(const float* place, std::int32_t offset) {
  return reinterpret_cast<const float*>(reinterpret_cast<const char*>(place) + offset);
}

// Runs while the processor rounds toward zero. Every result but the sums of magnitudes is exact.
template <int kCount>
LOCKSTEP_AVX2 inline void block(const Dot8Slice& slice, const float* values, const Dot8Rows& a,
                                std::int64_t first, float* p, std::uint16_t* met) {
  Half low[kCount], high[kCount];
#pragma GCC unroll 2
  for (int r = 0; r < kCount; ++r) {
    low[r].sum = high[r].sum = _mm256_setzero_ps();
    low[r].special = high[r].special = _mm256_setzero_si256();
  }
  for (int g = 0; g < slice.groups; ++g) {
    const std::int64_t row = first * a.stride + g * kFp8Group;
    const std::int8_t* exponents = slice.exponents + g * kFp8Group * kDot8Lanes;
#pragma GCC unroll 2
    for (int r = 0; r < kCount; ++r) {
      begin(low[r], largest(a.exponents + row + r * a.stride, exponents));
      begin(high[r], largest(a.exponents + row + r * a.stride, exponents + 32));
    }
    const float* place = values + g * kFp8Group * kPlace;
    for (int k = 0; k < kFp8Group; ++k, place += kPlace) {
      const __m256 b0 = _mm256_load_ps(place), b1 = _mm256_load_ps(place + 8);
#pragma GCC unroll 2
      for (int r = 0; r < kCount; ++r) {
        const std::int64_t at = row + r * a.stride + k;
        const __m256 x = _mm256_set1_ps(a.magnitudes[at]);
        const float* minus = behind(place, a.offsets[at]);
        low[r].all = _mm256_fmadd_ps(x, b0, low[r].all);
        high[r].all = _mm256_fmadd_ps(x, b1, high[r].all);
        low[r].minus = _mm256_fmadd_ps(x, _mm256_load_ps(minus), low[r].minus);
        high[r].minus = _mm256_fmadd_ps(x, _mm256_load_ps(minus + 8), high[r].minus);
      }
    }
#pragma GCC unroll 2
    for (int r = 0; r < kCount; ++r) finish(low[r]), finish(high[r]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < kCount; ++r) {
    _mm256_storeu_ps(p + (first + r) * kDot8Lanes, low[r].sum);
    _mm256_storeu_ps(p + (first + r) * kDot8Lanes + 8, high[r].sum);
    const int lanes = _mm256_movemask_ps(_mm256_castsi256_ps(low[r].special)) |
                      _mm256_movemask_ps(_mm256_castsi256_ps(high[r].special)) << 8;
    met[first + r] = static_cast<std::uint16_t>(lanes);
  }
}

// Not inlined: no arithmetic may move over the change of the rounding.
LOCKSTEP_AVX2 __attribute__((noinline)) void toward_zero(const Dot8Slice& slice, int rows,
                                                         const Dot8Rows& a, float* p,
                                                         std::uint16_t* met) {
  alignas(64) float values[kFp8Run * kPlace];
  expand(slice, values);
  int i = 0;
  for (; i + 2 <= rows; i += 2) block<2>(slice, values, a, i, p, met);
  for (; i < rows; ++i) block<1>(slice, values, a, i, p, met);
}

}  // namespace

void dot8_avx2(const Dot8Slice& slice, int rows, const Dot8Rows& a, float* p, std::uint16_t* met) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | _MM_ROUND_TOWARD_ZERO);
  toward_zero(slice, rows, a, p, met);
  _mm_setcsr(before);
}

}  // namespace lockstep
#endif
