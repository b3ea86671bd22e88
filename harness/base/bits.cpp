#include "harness/base/bits.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/core/require.h"

namespace lockstep {
namespace {

// Order-preserving: -0 maps just below +0.
std::int64_t place_on_line(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::int64_t magnitude = u & 0x7fffffffu;
  return (u >> 31) ? -1 - magnitude : magnitude;
}

// Whether one of so many pairs is not the same value: without a branch, so that it takes eight
// pairs at once.
constexpr std::size_t kAtOnce = 64;
bool block_differs(const float* got, const float* want) {
  std::uint32_t differs = 0;
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    const auto g = std::bit_cast<std::uint32_t>(got[i]), w = std::bit_cast<std::uint32_t>(want[i]);
    differs |= (g ^ w) | static_cast<std::uint32_t>((w & 0x7fffffffu) > 0x7f800000u);
  }
  return differs != 0;
}

}  // namespace

bool is_nan_bits(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) > 0x7f800000u;
}

std::optional<std::int64_t> first_mismatch(std::span<const float> got,
                                           std::span<const float> want) {
  require(got.size() == want.size(), "tensors that are compared have the same number of elements");
  std::size_t i = 0;
  while (i + kAtOnce <= got.size() && !block_differs(&got[i], &want[i])) i += kAtOnce;
  for (; i < got.size(); ++i) {
    const bool same = std::memcmp(&got[i], &want[i], sizeof(float)) == 0;
    if (!same || is_nan_bits(want[i])) return static_cast<std::int64_t>(i);
  }
  return std::nullopt;
}

std::optional<std::int64_t> ulp_distance(float a, float b) {
  if (is_nan_bits(a) || is_nan_bits(b)) return std::nullopt;
  return std::abs(place_on_line(a) - place_on_line(b));
}

std::optional<std::int64_t> bf16_ulp_distance(float a, float b) {
  const auto low = std::bit_cast<std::uint32_t>(a) | std::bit_cast<std::uint32_t>(b);
  if (is_nan_bits(a) || is_nan_bits(b) || (low & 0xffffu) != 0) return std::nullopt;
  // An arithmetic shift: the negative values -1 - (m << 16) become -1 - m.
  return std::abs((place_on_line(a) >> 16) - (place_on_line(b) >> 16));
}

std::string value_text(float value) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::array<char, 16> hex{};
  std::snprintf(hex.data(), hex.size(), " 0x%08x", std::bit_cast<std::uint32_t>(value));
  return std::string(text.data(), end) + hex.data();
}

}  // namespace lockstep
