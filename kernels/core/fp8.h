// Codes, exponents and sums of fp8: arithmetic.md 5.2 and 5.3. The scalar model; host kernels use
// faster forms that are equal to it (host/fp8/dot8.h).
#pragma once

#include <cstdint>

#include "kernels/core/contract.h"

namespace lockstep {

inline constexpr int kFp8Version = 1;
inline constexpr int kFp8Group = 32;           // Products that meet in one sum.
inline constexpr int kFp8Run = 128;            // Products of one chain: its sum is added in fp32.
inline constexpr int kFp8Fraction = 13;        // Terms are truncated to the grid 2^(E - 13).
inline constexpr std::int64_t kFp8Align = 16;  // Codes of a row are a multiple of so many.

// X and W.
struct e4m3 {
  static constexpr int kFraction = 3, kBias = 7;
  static constexpr std::uint32_t kTop = 0x7e;  // The largest code that is a number.
  static constexpr int kLargest = 8;           // n: the exponent of the largest code.
  static constexpr int kCap = 40;              // |k| is never larger.
  static constexpr bool kHasInfinity = false;
  std::uint8_t bits;
};
// dY.
struct e5m2 {
  static constexpr int kFraction = 2, kBias = 15;
  static constexpr std::uint32_t kTop = 0x7b;
  static constexpr int kLargest = 15;
  static constexpr int kCap = 61;
  static constexpr bool kHasInfinity = true;
  std::uint8_t bits;
};

LOCKSTEP_HD std::int64_t fp8_padded(std::int64_t n) {
  return (n + kFp8Align - 1) / kFp8Align * kFp8Align;
}

// The word whose maximum over the rows in use is the amax.
LOCKSTEP_HD std::uint32_t fp8_amax(bf16 x) {
  return static_cast<std::uint32_t>(x.bits & 0x7fffu) << 16;
}
LOCKSTEP_HD bool fp8_amax_is_finite(std::uint32_t amax) { return amax < 0x7f800000u; }

template <class F>
LOCKSTEP_HD std::int32_t fp8_clamped(std::int32_t k) {
  return k < -F::kCap ? -F::kCap : k > F::kCap ? F::kCap : k;
}
// k(a): within the cap, the exponent of the largest power of two that does not saturate.
template <class F>
LOCKSTEP_HD std::int32_t fp8_exponent(std::uint32_t amax) {
  if (amax == 0 || !fp8_amax_is_finite(amax)) return 0;
  const std::int32_t over = (amax & 0x7fffffu) > 0x600000u ? 1 : 0;
  return fp8_clamped<F>(F::kLargest - (static_cast<std::int32_t>(amax >> 23) - 127) - over);
}
// 2^k for |k| <= 126.
LOCKSTEP_HD float fp8_power(std::int32_t k) {
  return from_bits(static_cast<std::uint32_t>(k + 127) << 23);
}

// q(x, k), from v = mul(x, 2^k).
template <class F>
LOCKSTEP_HD F fp8_code_of(float v) {
  const std::uint32_t u = bits(v), magnitude = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
  if (magnitude > 0x7f800000u) return F{0x7f};
  if (magnitude == 0x7f800000u) return F{static_cast<std::uint8_t>(sign | F::kTop)};
  const int field = static_cast<int>(magnitude >> 23), e = (field > 1 ? field : 1) - 127;
  const int eb = e > 1 - F::kBias ? e : 1 - F::kBias;
  const std::uint32_t m = (magnitude & 0x7fffffu) | (field != 0 ? 0x800000u : 0u);
  // |v| = m * 2^(e - 23); j counts steps of 2^(eb - fraction bits), ties to even.
  const int right = 23 - F::kFraction + eb - e;
  std::uint32_t j = 0;
  if (right < 26) j = (m + (1u << (right - 1)) - 1u + ((m >> right) & 1u)) >> right;
  const std::uint32_t c =
      e < 1 - F::kBias ? j : (static_cast<std::uint32_t>(e + F::kBias - 1) << F::kFraction) + j;
  return F{static_cast<std::uint8_t>(sign | (c < F::kTop ? c : F::kTop))};
}
template <class F>
LOCKSTEP_HD F fp8_code(bf16 x, std::int32_t k) {
  return fp8_code_of<F>(mul(load(x), fp8_power(k)));
}

// ---- FDA32 --------------------------------------------------------------------------------------
template <class F>
LOCKSTEP_HD bool fp8_is_infinite(F x) {
  return F::kHasInfinity && (x.bits & 0x7fu) == F::kTop + 1u;
}
template <class F>
LOCKSTEP_HD bool fp8_is_nan(F x) {
  return (x.bits & 0x7fu) > F::kTop && !fp8_is_infinite(x);
}
template <class F>
LOCKSTEP_HD bool fp8_is_zero(F x) {
  return (x.bits & 0x7fu) == 0;
}
// The exponent and the significand with its hidden bit; neither normalised nor flushed.
template <class F>
LOCKSTEP_HD int fp8_binade(F x) {
  const int field = (x.bits & 0x7f) >> F::kFraction;
  return (field > 1 ? field : 1) - F::kBias;
}
template <class F>
LOCKSTEP_HD std::uint32_t fp8_significand(F x) {
  const std::uint32_t hidden = 1u << F::kFraction, magnitude = x.bits & 0x7fu;
  return (magnitude & (hidden - 1u)) | (magnitude < hidden ? 0u : hidden);
}
// The value of a code that is a number; exact.
template <class F>
LOCKSTEP_HD float load_fp8(F x) {
  const float magnitude =
      mul(static_cast<float>(fp8_significand(x)), fp8_power(fp8_binade(x) - F::kFraction));
  return (x.bits & 0x80u) != 0 ? neg(magnitude) : magnitude;
}

// S * 2^(E - 13) toward zero to 13 fraction bits; a zero is +0. S has at most 30 bits.
LOCKSTEP_HD float fp8_truncated(std::int32_t sum, int e) {
  std::uint32_t m = static_cast<std::uint32_t>(sum < 0 ? -sum : sum);
  if (m == 0) return 0.0f;
  int last = e - kFp8Fraction;  // The exponent of m's last place.
  for (; m >= 2u << kFp8Fraction; m >>= 1) ++last;
  // Where no place is cut off, the sum may be subnormal: then it is on the grid 2^-139.
  const float scaled = last < -126
                           ? mul(mul(static_cast<float>(m), fp8_power(-100)), fp8_power(last + 100))
                           : mul(static_cast<float>(m), fp8_power(last));
  return sum < 0 ? neg(scaled) : scaled;
}

// c plus `count` <= 32 products: places a[0], a[a_stride], ... against b.
template <class A, class B>
LOCKSTEP_HD float fda32(int count, const A* a, std::int64_t a_stride, const B* b,
                        std::int64_t b_stride, float c) {
  constexpr int kFraction = A::kFraction + B::kFraction;
  const bool c_is_zero = (bits(c) & 0x7fffffffu) == 0;
  const int c_field = static_cast<int>((bits(c) >> 23) & 255u);
  const int c_binade = (c_field > 1 ? c_field : 1) - 127;
  bool nan = c != c, up = c == infinity(), down = c == neg(infinity()), any = !c_is_zero;
  int top = c_is_zero ? -1000 : c_binade;
  for (int k = 0; k < count; ++k) {
    const A x = a[k * a_stride];
    const B y = b[k * b_stride];
    const bool negative = ((x.bits ^ y.bits) & 0x80u) != 0;
    if (fp8_is_nan(x) || fp8_is_nan(y)) {
      nan = true;
    } else if (fp8_is_infinite(x) || fp8_is_infinite(y)) {
      nan = nan || fp8_is_zero(x) || fp8_is_zero(y);
      up = up || !negative;
      down = down || negative;
    } else if (!fp8_is_zero(x) && !fp8_is_zero(y)) {
      const int e = fp8_binade(x) + fp8_binade(y);
      any = true;
      top = e > top ? e : top;
    }
  }
  if (nan || (up && down)) return quiet_nan();
  if (up || down) return up ? infinity() : neg(infinity());
  if (!any) return 0.0f;
  std::int32_t sum = 0;
  for (int k = 0; k < count; ++k) {
    const A x = a[k * a_stride];
    const B y = b[k * b_stride];
    if (fp8_is_zero(x) || fp8_is_zero(y)) continue;
    const int cut = top - (fp8_binade(x) + fp8_binade(y));
    const std::uint32_t m = (fp8_significand(x) * fp8_significand(y)) << (kFp8Fraction - kFraction);
    const auto term = static_cast<std::int32_t>(cut > 31 ? 0u : m >> cut);
    sum += ((x.bits ^ y.bits) & 0x80u) != 0 ? -term : term;
  }
  if (!c_is_zero) {
    const int cut = top - c_binade + 23 - kFp8Fraction;
    const std::uint32_t m = (bits(c) & 0x7fffffu) | (c_field != 0 ? 0x800000u : 0u);
    const auto term = static_cast<std::int32_t>(cut > 31 ? 0u : m >> cut);
    sum += (bits(c) >> 31) != 0 ? -term : term;
  }
  return fp8_truncated(sum, top);
}

// One run of DOT8: a chain of at most four FDA32 from +0.
template <class A, class B>
LOCKSTEP_HD float fp8_run(std::int64_t places, const A* a, std::int64_t a_stride, const B* b,
                          std::int64_t b_stride) {
  float p = 0.0f;
  for (std::int64_t g = 0; g < places; g += kFp8Group) {
    const std::int64_t left = places - g;
    p = fda32(static_cast<int>(left < kFp8Group ? left : kFp8Group), a + g * a_stride, a_stride,
              b + g * b_stride, b_stride, p);
  }
  return p;
}
// DOT8(a, b, K). Places >= K have code 00, which is to leave them out. A NaN has the bits 7fffffff,
// also where infinities of two runs meet.
template <class A, class B>
LOCKSTEP_HD float dot8(std::int64_t k, const A* a, std::int64_t a_stride, const B* b,
                       std::int64_t b_stride) {
  float total = 0.0f;
  for (std::int64_t r = 0; r < k; r += kFp8Run) {
    const std::int64_t left = k - r;
    total = add(total, fp8_run(left < kFp8Run ? left : kFp8Run, a + r * a_stride, a_stride,
                               b + r * b_stride, b_stride));
  }
  return total == total ? total : quiet_nan();
}

}  // namespace lockstep
