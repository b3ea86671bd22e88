// FDA16 of arithmetic.md 0.3: how a tensor core adds 16 products of bf16 to an fp32 accumulator.
// The scalar model; host kernels use faster forms that are equal to it (host/fda16.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/core/contract.h"

namespace lockstep {

struct TensorCore {
  int fraction_bits;  // F: terms are truncated to the grid 2^(E - F).
  int group;          // Products that meet in one sum.
  int min_exponent;   // E is never smaller.
  friend constexpr bool operator==(const TensorCore&, const TensorCore&) = default;
};
inline constexpr TensorCore kSm90{.fraction_bits = 25, .group = 16, .min_exponent = -133};

// No model: uncalibrated.
struct CalibratedArchitecture {
  std::string_view name;
  std::optional<TensorCore> model;
  bool measured;
};
inline constexpr CalibratedArchitecture kArchitectures[] = {
    {.name = "sm_70", .model = {}, .measured = false},
    {.name = "sm_80", .model = {}, .measured = false},
    {.name = "sm_86", .model = {}, .measured = false},
    {.name = "sm_89", .model = {}, .measured = false},
    {.name = "sm_90", .model = kSm90, .measured = true},
    {.name = "sm_100", .model = kSm90, .measured = false}};

constexpr std::optional<TensorCore> tensor_core(std::string_view architecture) {
  for (const CalibratedArchitecture& a : kArchitectures) {
    if (a.name == architecture) return a.model;
  }
  return {};
}

namespace fda {

// (-1)^negative * significand * 2^(exponent - fraction_bits). Subnormals are neither flushed nor
// normalised.
struct Term {
  bool negative;
  int exponent;
  std::uint64_t significand;
};
inline bool is_nan(float x) { return x != x; }
inline bool is_infinite(float x) { return bits(abs(x)) == 0x7f800000u; }
inline Term decode(float x, int fraction_bits) {
  const std::uint32_t u = bits(x);
  const int field = static_cast<int>((u >> 23) & 255u);
  const std::uint32_t significand = (u & 0x7fffffu) | (field != 0 ? 0x800000u : 0u);
  return {(u >> 31) != 0, std::max(field, 1) - 127, significand >> (23 - fraction_bits)};
}
// Sum of terms on the grid 2^scale, toward zero to fp32; a zero is +0.
inline float round_toward_zero(std::int64_t sum, int scale) {
  std::uint64_t m = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  if (m == 0) return 0.0f;
  const int exponent = static_cast<int>(std::bit_width(m)) - 1 + scale;
  const int last = std::max(exponent - 23, -149);  // Exponent of the result's last place.
  m = last >= scale ? (last - scale > 63 ? 0 : m >> (last - scale)) : m << (scale - last);
  if (m == 0) return 0.0f;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  if (exponent > 127) return from_bits(sign | 0x7f800000u);
  const std::uint32_t field = exponent < -126 ? 0u : static_cast<std::uint32_t>(exponent + 127);
  return from_bits(sign | (field << 23) | (static_cast<std::uint32_t>(m) & 0x7fffffu));
}

}  // namespace fda

// One step: c plus `count` <= core.group products. The operands are bf16 values, widened.
inline float fda_step(const TensorCore& core, int count, const float* a, std::int64_t a_stride,
                      const float* b, std::int64_t b_stride, float c) {
  fda::Term terms[17];
  int n = 0;
  bool nan = fda::is_nan(c), up = c == infinity(), down = c == neg(infinity());
  int top = core.min_exponent;
  for (int k = 0; k < count; ++k) {
    const float x = a[k * a_stride], y = b[k * b_stride];
    if (fda::is_nan(x) || fda::is_nan(y)) {
      nan = true;
    } else if (fda::is_infinite(x) || fda::is_infinite(y)) {
      const bool negative = ((bits(x) ^ bits(y)) >> 31) != 0;
      nan = nan || x == 0.0f || y == 0.0f;
      (negative ? down : up) = true;
    } else if (x != 0.0f && y != 0.0f) {
      const fda::Term p = fda::decode(x, 7), q = fda::decode(y, 7);
      terms[n] = {p.negative != q.negative, p.exponent + q.exponent,
                  (p.significand * q.significand) << 9};
      top = std::max(top, terms[n++].exponent);
    }
  }
  if (nan || (up && down)) return quiet_nan();
  if (up || down) return up ? infinity() : neg(infinity());
  if (c != 0.0f) {
    terms[n] = fda::decode(c, 23);
    top = std::max(top, terms[n++].exponent);
  }
  // Every significand has 23 fraction bits now.
  std::int64_t sum = 0;
  for (int k = 0; k < n; ++k) {
    const int right = 23 + top - terms[k].exponent - core.fraction_bits;
    const std::uint64_t m = right > 63  ? 0
                            : right > 0 ? terms[k].significand >> right
                                        : terms[k].significand << -right;
    sum += terms[k].negative ? -static_cast<std::int64_t>(m) : static_cast<std::int64_t>(m);
  }
  return fda::round_toward_zero(sum, top - core.fraction_bits);
}

// DOT in bf16, continued from c: places begin <= e < end, groups at multiples of core.group; the
// other places of a group are +0 in both factors, which is to leave them out.
inline float fda_chain(const TensorCore& core, std::int64_t begin, std::int64_t end, const float* a,
                       std::int64_t a_stride, const float* b, std::int64_t b_stride, float c) {
  for (std::int64_t e = begin; e < end;) {
    const std::int64_t next = std::min(end, (e / core.group + 1) * core.group);
    c = fda_step(core, static_cast<int>(next - e), a + e * a_stride, a_stride, b + e * b_stride,
                 b_stride, c);
    e = next;
  }
  return c;
}

}  // namespace lockstep
