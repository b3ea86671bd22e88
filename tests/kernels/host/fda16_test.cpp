// The vectors of FDA16, and every fast form against the scalar model on dots that provoke it.
#include "kernels/core/fda16.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/host/fda16.h"
#include "tests/kernels/host/fda_families.h"

namespace lockstep {
namespace {

testing::AssertionResult has_bits(float x, std::uint32_t want) {
  if (bits(x) == want) return testing::AssertionSuccess();
  return testing::AssertionFailure() << std::hex << bits(x) << " instead of " << want;
}

// One step by a form: the row a against 16 columns that all hold b. All lanes must agree.
float step_of(const FdaForm& form, const std::array<float, 16>& a, const std::array<float, 16>& b,
              float c) {
  FdaPanels panel;
  panel.pack(16, 16, b.data(), 1, 0);
  std::array<float, 16> values, sums;
  std::array<std::uint32_t, 16> exponents;
  pack_fda_row(0, 16, a.data(), 1, values.data(), exponents.data());
  sums.fill(c);
  form.kernel(0, 16, values.data(), exponents.data(), panel.values(0), panel.exponents(0),
              sums.data());
  for (const float s : sums) EXPECT_EQ(bits(s), bits(sums[0])) << form.name;
  return sums[0];
}

class EveryForm : public testing::TestWithParam<FdaForm> {
 protected:
  static testing::AssertionResult gives(const std::array<float, 16>& a,
                                        const std::array<float, 16>& b, std::uint32_t c,
                                        std::uint32_t want) {
    const testing::AssertionResult scalar =
        has_bits(fda_step(kSm90, 16, a.data(), 1, b.data(), 1, from_bits(c)), want);
    if (!scalar) return testing::AssertionFailure() << "scalar model: " << scalar.message();
    return has_bits(step_of(GetParam(), a, b, from_bits(c)), want);
  }
  static std::array<float, 16> all(std::uint32_t b) {
    std::array<float, 16> x;
    x.fill(widened(b));
    return x;
  }
  static std::array<float, 16> first(std::uint32_t b, std::uint32_t second = 0) {
    std::array<float, 16> x{};
    x[0] = widened(b), x[1] = widened(second);
    return x;
  }
};

TEST_P(EveryForm, HasTheVectorsOfTheContract) {
  std::array<float, 16> counting;
  for (int k = 0; k < 16; ++k) counting[static_cast<std::size_t>(k)] = static_cast<float>(k + 1);
  EXPECT_TRUE(gives(counting, all(0x3f80), 0, 0x43080000));
  EXPECT_TRUE(gives(all(0x3dcd), all(0x3dcd), 0, 0x3e242900));
  EXPECT_TRUE(gives(all(0x3dcd), all(0x3dcd), 0x3f800000, 0x3f948520));
  EXPECT_TRUE(gives(all(0x3dcd), all(0x3dcd), 0xcb800000, 0xcb800000));
  EXPECT_TRUE(gives(all(0), all(0), 0x80000000, 0x00000000));
  EXPECT_TRUE(gives(all(0), all(0), 0x3f800001, 0x3f800001));
  EXPECT_TRUE(gives(all(0), all(0), 0x00000001, 0x00000001));
  EXPECT_TRUE(gives(first(0x3f80, 0x3f80), first(0x3f80, 0xbf80), 0x30800000, 0x00000000));
  EXPECT_TRUE(gives(first(0x3f80, 0x3f80), first(0x3f80, 0xbf80), 0x3f800001, 0x3f800001));
  EXPECT_TRUE(gives(first(0x3f80), first(0x3f81), 0x33000001, 0x3f810000));
  EXPECT_TRUE(gives(first(0x3f80), first(0x3f81), 0xb3000001, 0x3f80ffff));
  EXPECT_TRUE(gives(first(0x0001), first(0x3f80), 0, 0x00010000));
  EXPECT_TRUE(gives(first(0x0100), first(0x0100), 0, 0x00000000));
  EXPECT_TRUE(gives(first(0x7f00), first(0x4080), 0, 0x7f800000));
  EXPECT_TRUE(gives(first(0x7f80), first(0x0000), 0, 0x7fffffff));
}
// Beyond the vectors: what an infinity or NaN meets decides, wherever it stands.
TEST_P(EveryForm, KnowsInfinitiesAndNaN) {
  EXPECT_TRUE(gives(first(0x7f80), first(0x3f80), 0, 0x7f800000));
  EXPECT_TRUE(gives(first(0x7f80), first(0xbf80), 0, 0xff800000));
  EXPECT_TRUE(gives(first(0x7f80), first(0x3f80), 0xff800000, 0x7fffffff));
  EXPECT_TRUE(gives(first(0x7f80, 0x7f80), first(0x3f80, 0xbf80), 0, 0x7fffffff));
  EXPECT_TRUE(gives(first(0x7fc0), first(0x0000), 0, 0x7fffffff));
  EXPECT_TRUE(gives(all(0), all(0), 0x7f800000, 0x7f800000));
  EXPECT_TRUE(gives(all(0), all(0), 0xff800000, 0xff800000));
  EXPECT_TRUE(gives(all(0), all(0), 0xffc00001, 0x7fffffff));
}
TEST_P(EveryForm, ChainsStepsAsADot) {
  FdaPanels b;
  std::vector<float> bv(32), a(32);
  for (int k = 0; k < 32; ++k) {
    a[static_cast<std::size_t>(k)] = load(st<bf16>(div(static_cast<float>(k + 1), 7.0f)));
    bv[static_cast<std::size_t>(k)] =
        load(st<bf16>(div(static_cast<float>((5 * k % 11) - 5), 3.0f)));
  }
  EXPECT_TRUE(has_bits(fda_chain(kSm90, 0, 32, a.data(), 1, bv.data(), 1, 0.0f), 0xbfc16d80));
  b.pack(32, 1, bv.data(), 1, 1);
  std::array<float, 16> c{};
  std::vector<float> values(32);
  std::vector<std::uint32_t> exponents(32);
  pack_fda_row(0, 32, a.data(), 1, values.data(), exponents.data());
  GetParam().kernel(0, 32, values.data(), exponents.data(), b.values(0), b.exponents(0), c.data());
  EXPECT_TRUE(has_bits(c[0], 0xbfc16d80));
}

TEST_P(EveryForm, EqualsTheScalarModel) {
  const bool itself = GetParam().kernel == fda_scalar;
  expect_equal_to_the_scalar_model(GetParam(), itself ? 20000 : 1000000);
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryForm, testing::ValuesIn(fda_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

// Symmetric in a and b and in the order of the 16 products.
TEST(Fda16, IsSymmetric) {
  Drawn draw(5);
  for (int round = 0; round < 20000; ++round) {
    const Family& f = kFamilies[static_cast<std::size_t>(draw.below(std::size(kFamilies)))];
    std::array<float, 16> a, b;
    for (float& x : a) x = draw.operand(f);
    for (float& x : b) x = draw.operand(f);
    const float c = draw.start(f), one = fda_step(kSm90, 16, a.data(), 1, b.data(), 1, c);
    ASSERT_EQ(bits(one), bits(fda_step(kSm90, 16, b.data(), 1, a.data(), 1, c))) << f.name;
    ASSERT_EQ(bits(one), bits(fda_step(kSm90, 16, a.data() + 15, -1, b.data() + 15, -1, c)))
        << f.name;
    ASSERT_FALSE(one == 0.0f && bits(one) != 0) << "never -0";
  }
}
// The sum is exact where nothing is cut off: few bits close together.
TEST(Fda16, IsExactOnSmallIntegers) {
  Drawn draw(6);
  for (int round = 0; round < 20000; ++round) {
    std::array<float, 16> a, b;
    std::int64_t sum = draw.below(2001) - 1000;
    const auto c = static_cast<float>(sum);
    for (std::size_t k = 0; k < 16; ++k) {
      const std::int64_t x = draw.below(201) - 100, y = draw.below(201) - 100;
      a[k] = static_cast<float>(x), b[k] = static_cast<float>(y), sum += x * y;
    }
    ASSERT_EQ(fda_step(kSm90, 16, a.data(), 1, b.data(), 1, c), static_cast<float>(sum));
  }
}
TEST(Fda16, KnowsWhichArchitecturesAreCalibrated) {
  EXPECT_EQ(tensor_core("sm_90"), kSm90);
  EXPECT_TRUE(tensor_core("sm_100").has_value());
  for (const char* name : {"sm_70", "sm_80", "sm_86", "sm_89", "sm_120"})
    EXPECT_FALSE(tensor_core(name)) << name;
}

// Places outside of a row's range are left out, whatever they hold; groups stay where they are.
TEST(FdaRow, LeavesOutWhatLiesOutsideOfItsRange) {
  Drawn draw(7);
  const Family& f = kFamilies[2];
  for (int round = 0; round < 300; ++round) {
    const std::int64_t k = 1 + draw.below(90), n = 1 + draw.below(40), begin = draw.below(k);
    const std::int64_t end = begin + draw.below(k - begin) + 1, stride = 1 + draw.below(3);
    std::vector<float> a(static_cast<std::size_t>(k * stride)), b(static_cast<std::size_t>(k * n)),
        c(static_cast<std::size_t>(n));
    for (float& x : a) x = draw.operand(f);
    for (float& x : b) x = draw.operand(f);
    for (float& x : c) x = draw.start(f);
    std::vector<float> want = c;
    for (std::int64_t j = 0; j < n; ++j) {
      float& w = want[static_cast<std::size_t>(j)];
      w = fda_chain(kSm90, begin, end, a.data(), stride, b.data() + j, n, w);
    }
    for (std::int64_t e = 0; e < k; ++e) {
      if (e >= begin && e < end) continue;
      a[static_cast<std::size_t>(e * stride)] = infinity();
      for (std::int64_t j = 0; j < n; ++j) b[static_cast<std::size_t>(e * n + j)] = quiet_nan();
    }
    FdaPanels panels;
    panels.pack(k, n, b.data(), n, 1);
    fda_row(begin, end, a.data(), stride, panels, c.data(), n);
    for (std::size_t j = 0; j < c.size(); ++j) ASSERT_EQ(bits(c[j]), bits(want[j])) << j;
  }
}

}  // namespace
}  // namespace lockstep
