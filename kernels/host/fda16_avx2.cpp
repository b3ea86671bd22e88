// FDA16 with AVX2. Products of bf16 are exact in fp32; scaled by 2^(25 - E) a conversion to int32
// truncates them to the grid, and int32 sums are exact. E must let scale, products and result be
// normal numbers: other lanes take the scalar model.
#include "kernels/host/fda16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LOCKSTEP_AVX2 __attribute__((target("avx2,fma")))

namespace lockstep {
namespace {

constexpr int kLowest = -90, kHighest = 100;  // E of the lanes that are done here.

struct Half {
  __m256i exponent;  // E
  __m256i idle;      // No product takes part: the lane keeps its c.
  __m256i rare;      // The scalar model's lanes.
};

LOCKSTEP_AVX2 inline Half examine(__m128i products, __m256 c) {
  const __m256i largest = _mm256_cvtepi16_epi32(products);
  const __m256i field =
      _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(c), 23), _mm256_set1_epi32(255));
  const __m256i e = _mm256_max_epi32(largest, _mm256_sub_epi32(field, _mm256_set1_epi32(127)));
  const __m256i idle = _mm256_cmpgt_epi32(_mm256_set1_epi32(kFdaNoProduct), largest);
  const __m256i small =
      _mm256_andnot_si256(idle, _mm256_cmpgt_epi32(_mm256_set1_epi32(kLowest), e));
  return {e, idle, _mm256_or_si256(small, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(kHighest)))};
}
LOCKSTEP_AVX2 inline __m256 power(int bias, __m256i e) {  // 2^(bias - 127 + e)
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_set1_epi32(bias), e), 23));
}
LOCKSTEP_AVX2 inline __m256i truncated(__m256 x, __m256 scale) {
  return _mm256_cvttps_epi32(_mm256_mul_ps(x, scale));
}
// low + high toward zero to 24 bits. The double sum is exact, and so is its conversion after the
// mask.
LOCKSTEP_AVX2 inline __m128 sum_toward_zero(__m128i low, __m128i high) {
  const __m256d mask = _mm256_castsi256_pd(_mm256_set1_epi64x(~((1ll << 29) - 1)));
  const __m256d sum = _mm256_add_pd(_mm256_cvtepi32_pd(low), _mm256_cvtepi32_pd(high));
  return _mm256_cvtpd_ps(_mm256_and_pd(sum, mask));
}
LOCKSTEP_AVX2 inline __m256 finish(__m256i low, __m256i high, const Half& half, __m256 c) {
  const __m128 first = sum_toward_zero(_mm256_castsi256_si128(low), _mm256_castsi256_si128(high));
  const __m128 second =
      sum_toward_zero(_mm256_extracti128_si256(low, 1), _mm256_extracti128_si256(high, 1));
  const __m256 sum = _mm256_mul_ps(_mm256_set_m128(second, first), power(127 - 25, half.exponent));
  // -0 becomes +0.
  return _mm256_blendv_ps(sum, _mm256_add_ps(c, _mm256_setzero_ps()),
                          _mm256_castsi256_ps(half.idle));
}

// One step over the places from <= k < to of a group.
template <bool whole>
LOCKSTEP_AVX2 inline void step(std::int64_t from, std::int64_t to, const float* a,
                               const std::uint32_t* ae, const float* b, const std::int16_t* be,
                               float* out, __m256& c0, __m256& c1) {
  const std::int64_t first = whole ? 0 : from, last = whole ? kFdaGroup : to;
  __m256i top = _mm256_set1_epi16(2 * kFdaZero);
#pragma GCC unroll 16
  for (std::int64_t k = first; k < last; ++k) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(ae[k]));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(be + k * kFdaLanes));
    top = _mm256_max_epi16(top, _mm256_add_epi16(x, y));
  }
  const Half h0 = examine(_mm256_castsi256_si128(top), c0),
             h1 = examine(_mm256_extracti128_si256(top, 1), c1);
  const __m256 s0 = power(127 + 25, _mm256_sub_epi32(_mm256_setzero_si256(), h0.exponent));
  const __m256 s1 = power(127 + 25, _mm256_sub_epi32(_mm256_setzero_si256(), h1.exponent));
  // Two int32 sums: 16 products and c may pass 2^31.
  __m256i low0 = truncated(c0, s0), low1 = truncated(c1, s1);
  __m256i high0 = _mm256_setzero_si256(), high1 = high0;
  const std::int64_t middle = whole ? 8 : first + (last - first) / 2;
#pragma GCC unroll 8
  for (std::int64_t k = first; k < middle; ++k) {
    const __m256 x = _mm256_broadcast_ss(a + k);
    low0 =
        _mm256_add_epi32(low0, truncated(_mm256_mul_ps(x, _mm256_loadu_ps(b + k * kFdaLanes)), s0));
    low1 = _mm256_add_epi32(
        low1, truncated(_mm256_mul_ps(x, _mm256_loadu_ps(b + k * kFdaLanes + 8)), s1));
  }
#pragma GCC unroll 8
  for (std::int64_t k = middle; k < last; ++k) {
    const __m256 x = _mm256_broadcast_ss(a + k);
    high0 = _mm256_add_epi32(high0,
                             truncated(_mm256_mul_ps(x, _mm256_loadu_ps(b + k * kFdaLanes)), s0));
    high1 = _mm256_add_epi32(
        high1, truncated(_mm256_mul_ps(x, _mm256_loadu_ps(b + k * kFdaLanes + 8)), s1));
  }
  const __m256i rare = _mm256_or_si256(h0.rare, h1.rare);
  if (__builtin_expect(_mm256_testz_si256(rare, rare), 1)) {
    c0 = finish(low0, high0, h0, c0);
    c1 = finish(low1, high1, h1, c1);
    return;
  }
  _mm256_storeu_ps(out, c0);
  _mm256_storeu_ps(out + 8, c1);
  const auto lanes0 = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(h0.rare)));
  const auto lanes1 = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(h1.rare)));
  float kept[kFdaLanes];
  for (int j = 0; j < kFdaLanes; ++j) kept[j] = out[j];
  _mm256_storeu_ps(out, finish(low0, high0, h0, c0));
  _mm256_storeu_ps(out + 8, finish(low1, high1, h1, c1));
  for (unsigned rest = lanes0 | (lanes1 << 8); rest != 0; rest &= rest - 1) {
    const int j = __builtin_ctz(rest);
    fda_lane(last - first, a + first, b + first * kFdaLanes + j, kept + j);
    out[j] = kept[j];
  }
  c0 = _mm256_loadu_ps(out);
  c1 = _mm256_loadu_ps(out + 8);
}

}  // namespace

LOCKSTEP_AVX2 void fda_avx2(std::int64_t begin, std::int64_t end, const float* a,
                            const std::uint32_t* ae, const float* b, const std::int16_t* be,
                            float* c) {
  __m256 c0 = _mm256_loadu_ps(c), c1 = _mm256_loadu_ps(c + 8);
  for (std::int64_t group = begin / kFdaGroup * kFdaGroup; group < end; group += kFdaGroup) {
    const std::int64_t from = begin > group ? begin - group : 0,
                       to = end < group + kFdaGroup ? end - group : kFdaGroup;
    const float* bg = b + group * kFdaLanes;
    const std::int16_t* bx = be + group * kFdaLanes;
    if (to - from == kFdaGroup) {
      step<true>(from, to, a + group, ae + group, bg, bx, c, c0, c1);
    } else {
      step<false>(from, to, a + group, ae + group, bg, bx, c, c0, c1);
    }
  }
  _mm256_storeu_ps(c, c0);
  _mm256_storeu_ps(c + 8, c1);
}

}  // namespace lockstep
#endif
