// FDA16 with AVX-512: the form of fda16_avx2.cpp on 16 lanes, with conversions that round toward
// zero by themselves.
#include "kernels/host/fda16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

namespace lockstep {
namespace {

constexpr int kLowest = -90, kHighest = 100;  // E of the lanes that are done here.

LOCKSTEP_AVX512 inline __m512 power(int bias, __m512i e) {  // 2^(bias - 127 + e)
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_set1_epi32(bias), e), 23));
}
LOCKSTEP_AVX512 inline __m512i truncated(__m512 x, __m512 scale) {
  return _mm512_cvttps_epi32(_mm512_mul_ps(x, scale));
}
LOCKSTEP_AVX512 inline __m256 sum_toward_zero(__m256i low, __m256i high) {
  const __m512d sum = _mm512_add_pd(_mm512_cvtepi32_pd(low), _mm512_cvtepi32_pd(high));  // Exact.
  return _mm512_cvt_roundpd_ps(sum, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// One step over the places from <= k < to of a group.
template <bool whole>
LOCKSTEP_AVX512 inline __m512 step(std::int64_t from, std::int64_t to, const float* a,
                                   const std::uint32_t* ae, const float* b, const std::int16_t* be,
                                   __m512 c) {
  const std::int64_t first = whole ? 0 : from, last = whole ? kFdaGroup : to;
  __m256i top = _mm256_set1_epi16(2 * kFdaZero);
#pragma GCC unroll 16
  for (std::int64_t k = first; k < last; ++k) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(ae[k]));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(be + k * kFdaLanes));
    top = _mm256_max_epi16(top, _mm256_add_epi16(x, y));
  }
  const __m512i largest = _mm512_cvtepi16_epi32(top);
  const __m512i field =
      _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(c), 23), _mm512_set1_epi32(255));
  const __m512i e = _mm512_max_epi32(largest, _mm512_sub_epi32(field, _mm512_set1_epi32(127)));
  const __mmask16 idle = _mm512_cmplt_epi32_mask(largest, _mm512_set1_epi32(kFdaNoProduct));
  const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(kLowest));
  const unsigned rare =
      (small & ~idle & 0xffffu) | _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(kHighest));
  const __m512 scale = power(127 + 25, _mm512_sub_epi32(_mm512_setzero_si512(), e));
  // Two int32 sums: 16 products and c may pass 2^31.
  __m512i low = truncated(c, scale), high = _mm512_setzero_si512();
  const std::int64_t middle = whole ? 8 : first + (last - first) / 2;
#pragma GCC unroll 8
  for (std::int64_t k = first; k < middle; ++k) {
    const __m512 p = _mm512_mul_ps(_mm512_set1_ps(a[k]), _mm512_loadu_ps(b + k * kFdaLanes));
    low = _mm512_add_epi32(low, truncated(p, scale));
  }
#pragma GCC unroll 8
  for (std::int64_t k = middle; k < last; ++k) {
    const __m512 p = _mm512_mul_ps(_mm512_set1_ps(a[k]), _mm512_loadu_ps(b + k * kFdaLanes));
    high = _mm512_add_epi32(high, truncated(p, scale));
  }
  const __m256 left = sum_toward_zero(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high));
  const __m256 right =
      sum_toward_zero(_mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1));
  __m512 sum = _mm512_insertf32x8(_mm512_castps256_ps512(left), right, 1);
  sum = _mm512_mul_ps(sum, power(127 - 25, e));
  // A lane without products keeps its c; -0 becomes +0.
  sum = _mm512_mask_add_ps(sum, idle, c, _mm512_setzero_ps());
  if (__builtin_expect(rare == 0, 1)) return sum;
  alignas(64) float kept[kFdaLanes], out[kFdaLanes];
  _mm512_store_ps(kept, c);
  _mm512_store_ps(out, sum);
  for (unsigned rest = rare; rest != 0; rest &= rest - 1) {
    const int j = __builtin_ctz(rest);
    fda_lane(last - first, a + first, b + first * kFdaLanes + j, kept + j);
    out[j] = kept[j];
  }
  return _mm512_load_ps(out);
}

}  // namespace

LOCKSTEP_AVX512 void fda_avx512(std::int64_t begin, std::int64_t end, const float* a,
                                const std::uint32_t* ae, const float* b, const std::int16_t* be,
                                float* c) {
  __m512 sum = _mm512_loadu_ps(c);
  for (std::int64_t group = begin / kFdaGroup * kFdaGroup; group < end; group += kFdaGroup) {
    const std::int64_t from = begin > group ? begin - group : 0,
                       to = end < group + kFdaGroup ? end - group : kFdaGroup;
    const float* bg = b + group * kFdaLanes;
    const std::int16_t* bx = be + group * kFdaLanes;
    sum = to - from == kFdaGroup ? step<true>(from, to, a + group, ae + group, bg, bx, sum)
                                 : step<false>(from, to, a + group, ae + group, bg, bx, sum);
  }
  _mm512_storeu_ps(c, sum);
}

}  // namespace lockstep
#endif
