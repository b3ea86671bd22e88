#include "harness/base/bits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(FirstMismatch, TellsZerosApart) {
  EXPECT_EQ(first_mismatch(std::vector{1.0f, -0.0f}, std::vector{1.0f, 0.0f}), 1);
}
TEST(FirstMismatch, TakesNanOnBothSidesForAViolation) {
  EXPECT_EQ(first_mismatch(std::vector{1.0f, kNan}, std::vector{1.0f, kNan}), 1);
  EXPECT_EQ(first_mismatch(std::vector{kNan}, std::vector{1.0f}), 0);
  EXPECT_EQ(first_mismatch(std::vector{1.0f}, std::vector{kNan}), 0);
}
TEST(FirstMismatch, FindsNothingInEqualBitsInfinitiesIncluded) {
  EXPECT_EQ(
      first_mismatch(std::vector{kInfinity, -0.0f, 1e-45f}, std::vector{kInfinity, -0.0f, 1e-45f}),
      std::nullopt);
}
TEST(FirstMismatch, NamesTheFirst) {
  EXPECT_EQ(first_mismatch(std::vector{1.0f, 2.0f, 3.0f}, std::vector{1.0f, 9.0f, 9.0f}), 1);
}
TEST(FirstMismatch, FindsOneBitOrOneNanAtEveryPlaceOfALongTensor) {
  for (std::size_t at = 0; at < 200; ++at) {
    std::vector<float> got(200, 1.5f), want = got;
    got[at] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.5f) ^ 1u);
    EXPECT_EQ(first_mismatch(got, want), static_cast<std::int64_t>(at));
    got[at] = want[at] = kNan;
    EXPECT_EQ(first_mismatch(got, want), static_cast<std::int64_t>(at));
    got[at] = want[at] = -kInfinity;
    EXPECT_EQ(first_mismatch(got, want), std::nullopt);
  }
}

TEST(UlpDistance, CountsStepsOnTheLineOfFloats) {
  EXPECT_EQ(ulp_distance(1.0f, 1.0f), 0);
  EXPECT_EQ(ulp_distance(1.0f, std::nextafterf(1.0f, 2.0f)), 1);
  EXPECT_EQ(ulp_distance(-1.0f, std::nextafterf(-1.0f, -2.0f)), 1);
  EXPECT_EQ(ulp_distance(-0.0f, 0.0f), 1);
  EXPECT_EQ(ulp_distance(std::bit_cast<float>(1u), std::bit_cast<float>(0x80000001u)), 3);
  EXPECT_EQ(ulp_distance(kInfinity, std::numeric_limits<float>::max()), 1);
}
TEST(UlpDistance, CountsStepsOnTheLineOfBf16) {
  const auto bf16 = [](std::uint32_t bits) { return std::bit_cast<float>(bits << 16); };
  EXPECT_EQ(bf16_ulp_distance(bf16(0xbcbe), bf16(0xbcbf)), 1);
  EXPECT_EQ(bf16_ulp_distance(bf16(0x3f80), bf16(0x3f83)), 3);
  EXPECT_EQ(bf16_ulp_distance(-0.0f, 0.0f), 1);
  EXPECT_EQ(bf16_ulp_distance(bf16(0x0001), bf16(0x8001)), 3);
  EXPECT_EQ(bf16_ulp_distance(std::bit_cast<float>(0x3f800001u), 1.0f), std::nullopt);
  EXPECT_EQ(bf16_ulp_distance(kNan, 1.0f), std::nullopt);
}
TEST(UlpDistance, HasNoValueForNan) {
  EXPECT_EQ(ulp_distance(kNan, 1.0f), std::nullopt);
  EXPECT_EQ(ulp_distance(1.0f, kNan), std::nullopt);
}

TEST(ValueText, HoldsDecimalAndBits) {
  EXPECT_EQ(value_text(0.5f), "0.5 0x3f000000");
  EXPECT_EQ(value_text(-0.0f), "-0 0x80000000");
  EXPECT_EQ(value_text(-0.1f), "-0.1 0xbdcccccd");
  EXPECT_EQ(value_text(kInfinity), "inf 0x7f800000");
}

}  // namespace
}  // namespace lockstep
