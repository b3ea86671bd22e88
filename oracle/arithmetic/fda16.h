// FDA16 of arithmetic.md 0.3, one number at a time: what a tensor core of sm_90 computes from 16
// products and a sum. The fast forms must have its bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

// The parameters of an architecture. The defaults are the contract's, measured on sm_90.
struct Fda16Parameters {
  int fraction = 25;  // F: bits kept below the largest exponent.
  int group = 16;     // Products of a step.
  int least_exponent = -133;
};

inline constexpr std::uint32_t kFda16Nan = 0x7fffffffu;

// A number as sign, exponent and significand; subnormals are neither normalised nor flushed.
struct Decoded {
  bool negative = false, infinite = false, nan = false;
  int exponent = 0;
  std::uint64_t significand = 0;
};

inline Decoded decode(std::uint32_t sign, std::uint32_t field, std::uint32_t fraction,
                      std::uint32_t hidden) {
  if (field == 255) return {sign != 0, fraction == 0, fraction != 0, 0, 0};
  return {sign != 0, false, false, std::max(static_cast<int>(field), 1) - 127,
          field != 0 ? fraction | hidden : fraction};
}
inline Decoded decode_bf16(std::uint16_t x) {
  return decode(x >> 15, (x >> 7) & 255u, x & 0x7fu, 0x80u);
}
inline Decoded decode_fp32(float x) {
  return decode(bits(x) >> 31, (bits(x) >> 23) & 255u, bits(x) & 0x7fffffu, 0x800000u);
}

// The exact product with 14 fraction bits, not normalised, or the special value that the factors
// give.
inline Decoded product_of(const Decoded& a, const Decoded& b) {
  const bool infinite = a.infinite || b.infinite;
  const auto zero = [](const Decoded& x) { return !x.infinite && x.significand == 0; };
  const bool nan = a.nan || b.nan || (infinite && (zero(a) || zero(b)));
  return {a.negative != b.negative, infinite && !nan, nan, a.exponent + b.exponent,
          a.significand * b.significand};
}

// |sum| * 2^scale rounded toward zero, with gradual underflow; a zero is +0.
inline float toward_zero(std::int64_t sum, int scale) {
  if (sum == 0) return 0.0f;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const std::uint64_t magnitude =
      sum < 0 ? -static_cast<std::uint64_t>(sum) : static_cast<std::uint64_t>(sum);
  const int exponent = 63 - __builtin_clzll(magnitude) + scale;
  if (exponent > 127) return from_bits(sign | 0x7f800000u);
  const int shift =
      std::max(exponent, -126) - 23 - scale;  // From units of 2^scale to units in the last place.
  const std::uint64_t m = shift > 63 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (m == 0) return 0.0f;
  const std::uint32_t field = exponent < -126 ? 0u : static_cast<std::uint32_t>(exponent + 127);
  return from_bits(sign | field << 23 | (static_cast<std::uint32_t>(m) & 0x7fffffu));
}

// FDA16 of `count` products, at most parameters.group; the others are zero.
inline float fda16(const std::uint16_t* a, const std::uint16_t* b, int count, float c,
                   const Fda16Parameters& parameters = {}) {
  constexpr int kMost = 32;
  Decoded terms[kMost + 1];
  bool nan = false, up = false, down = false;
  int largest = parameters.least_exponent;
  for (int k = 0; k <= count; ++k) {
    terms[k] = k < count ? product_of(decode_bf16(a[k]), decode_bf16(b[k])) : decode_fp32(c);
    nan = nan || terms[k].nan;
    up = up || (terms[k].infinite && !terms[k].negative);
    down = down || (terms[k].infinite && terms[k].negative);
    if (terms[k].significand != 0) largest = std::max(largest, terms[k].exponent);
  }
  if (nan || (up && down)) return from_bits(kFda16Nan);
  if (up || down) return from_bits(up ? 0x7f800000u : 0xff800000u);
  std::int64_t sum = 0;
  for (int k = 0; k <= count; ++k) {
    const std::uint64_t m = terms[k].significand;
    if (m == 0) continue;
    const int shift = parameters.fraction - (k < count ? 14 : 23) - (largest - terms[k].exponent);
    const auto cut = static_cast<std::int64_t>(shift >= 0    ? m << shift
                                               : shift > -64 ? m >> -shift
                                                             : 0);
    sum += terms[k].negative ? -cut : cut;
  }
  return toward_zero(sum, largest - parameters.fraction);
}

// DOT over `terms` terms, continued from c in ascending groups, the last padded with zeros.
inline float fda16_dot(const std::uint16_t* a, const std::uint16_t* b, std::int64_t terms, float c,
                       const Fda16Parameters& parameters = {}) {
  for (std::int64_t k = 0; k < terms; k += parameters.group) {
    const auto count = static_cast<int>(std::min<std::int64_t>(parameters.group, terms - k));
    c = fda16(a + k, b + k, count, c, parameters);
  }
  return c;
}

}  // namespace lockstep::oracle
