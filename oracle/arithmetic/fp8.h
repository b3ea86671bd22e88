// The two fp8 types of arithmetic.md 5.2 and 5.3, one number at a time: exponent of an operand, its
// codes, and the tensor core's step over 32 products. The fast forms must have the bits of fda32.
#pragma once

#include <algorithm>
#include <cstdint>

#include "oracle/arithmetic/fda16.h"
#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/primitives.h"

namespace lockstep::oracle {

// A row of the table in 5.2. `top` is the largest finite code.
struct Fp8Type {
  int fraction, bias;
  std::uint8_t top;
  int n, cap;
};
inline constexpr Fp8Type kE4m3{3, 7, 0x7e, 8, 40};    // t4: X and W.
inline constexpr Fp8Type kE5m2{2, 15, 0x7b, 15, 61};  // t5: dY.

inline constexpr std::uint8_t kFp8Nan = 0x7f;

// An operand with an Inf or a NaN; its products are a violation (5.2).
inline bool fails(std::uint32_t amax) { return amax >= 0x7f800000u; }

inline std::uint32_t amax_with(std::uint32_t amax, float x) {
  return std::max(amax, bits(x) & 0x7fffffffu);
}

// k of 5.2: the power of two by which an operand with this amax is multiplied.
inline int fp8_exponent(std::uint32_t amax, const Fp8Type& type) {
  if (amax == 0 || fails(amax)) return 0;
  const int exponent = static_cast<int>(amax >> 23) - 127;
  const int k = type.n - exponent - ((amax & 0x7fffffu) > 0x600000u ? 1 : 0);
  return std::clamp(k, -type.cap, type.cap);
}

// q(x, k) of 5.2.
inline std::uint8_t fp8_code(float x, int k, const Fp8Type& type) {
  const float v = mul(x, power_of_two(k));
  if (v != v) return kFp8Nan;
  const std::uint32_t magnitude = bits(v) & 0x7fffffffu;
  const auto sign = static_cast<std::uint8_t>(bits(v) >> 31 << 7);
  if (magnitude == 0x7f800000u) return sign | type.top;
  const int exponent = std::max(static_cast<int>(magnitude >> 23), 1) - 127;
  const int unit = std::max(exponent, 1 - type.bias) - type.fraction;
  // |v| = significand * 2^(exponent - 23), in units of 2^unit.
  const std::uint64_t significand =
      (magnitude & 0x7fffffu) | (magnitude >= 0x800000u ? 0x800000u : 0u);
  const int shift = std::min(unit - (exponent - 23), 40);  // At least 20; nothing is left at 40.
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rest = significand & (2 * half - 1);
  std::uint64_t j = significand >> shift;
  j += rest > half || (rest == half && j % 2 == 1) ? 1 : 0;
  const std::uint64_t code =
      exponent < 1 - type.bias
          ? j
          : (static_cast<std::uint64_t>(exponent + type.bias - 1) << type.fraction) + j;
  return sign | static_cast<std::uint8_t>(std::min<std::uint64_t>(code, type.top));
}

// A code as sign, exponent and significand with the type's fraction bits, not normalised.
inline Decoded decode_fp8(std::uint8_t code, const Fp8Type& type) {
  const bool negative = code >> 7 != 0;
  const int magnitude = code & 0x7f, field = magnitude >> type.fraction;
  const int fraction = magnitude & ((1 << type.fraction) - 1);
  if (magnitude > type.top) {
    const bool infinite = type.fraction == 2 && fraction == 0;  // Only e5m2 has one.
    return {negative, infinite, !infinite, 0, 0};
  }
  const int significand = field != 0 ? fraction | 1 << type.fraction : fraction;
  return {negative, false, false, std::max(field, 1) - type.bias,
          static_cast<std::uint64_t>(significand)};
}

// FDA32 of `count` products, at most 32; the others are zero.
inline float fda32(const std::uint8_t* a, const Fp8Type& type_a, const std::uint8_t* b,
                   const Fp8Type& type_b, int count, float c) {
  constexpr int kGroup = 32, kFraction = 13;
  Decoded terms[kGroup + 1];
  bool nan = false, up = false, down = false, any = false;
  int largest = 0;
  for (int k = 0; k <= count; ++k) {
    terms[k] =
        k < count ? product_of(decode_fp8(a[k], type_a), decode_fp8(b[k], type_b)) : decode_fp32(c);
    nan = nan || terms[k].nan;
    up = up || (terms[k].infinite && !terms[k].negative);
    down = down || (terms[k].infinite && terms[k].negative);
    if (terms[k].significand == 0) continue;
    largest = any ? std::max(largest, terms[k].exponent) : terms[k].exponent;
    any = true;
  }
  if (nan || (up && down)) return from_bits(kFda16Nan);
  if (up || down) return from_bits(up ? 0x7f800000u : 0xff800000u);
  std::int64_t sum = 0;
  for (int k = 0; k <= count; ++k) {
    const std::uint64_t m = terms[k].significand;
    const int fraction = k < count ? type_a.fraction + type_b.fraction : 23;
    const int shift = kFraction - fraction - (largest - terms[k].exponent);
    if (m == 0) continue;
    const auto cut = static_cast<std::int64_t>(shift >= 0    ? m << shift
                                               : shift > -64 ? m >> -shift
                                                             : 0);
    sum += terms[k].negative ? -cut : cut;
  }
  const float exact = toward_zero(sum, largest - kFraction);
  const float d = from_bits(bits(exact) & 0xfffffc00u);
  return d == 0.0f ? 0.0f : d;
}

// DOT8 over `terms` terms. The terms of a factor lie `step` codes apart.
inline float dot8(const std::uint8_t* a, std::int64_t step_a, const Fp8Type& type_a,
                  const std::uint8_t* b, std::int64_t step_b, const Fp8Type& type_b,
                  std::int64_t terms) {
  constexpr std::int64_t kGroup = 32, kRun = 128;
  float total = 0.0f;
  for (std::int64_t run = 0; run < terms; run += kRun) {
    const std::int64_t end = std::min(terms, run + kRun);
    float part = 0.0f;
    for (std::int64_t group = run; group < end; group += kGroup) {
      const auto count = static_cast<int>(std::min(kGroup, end - group));
      std::uint8_t left[kGroup], right[kGroup];
      for (int k = 0; k < count; ++k) {
        left[k] = a[(group + k) * step_a];
        right[k] = b[(group + k) * step_b];
      }
      part = fda32(left, type_a, right, type_b, count, part);
    }
    total = add(total, part);
  }
  return total == total ? total : from_bits(kFda16Nan);
}

}  // namespace lockstep::oracle
