// The vectors of arithmetic.md 4 for functions and reductions, and the functions against the
// library's in double.
#include "oracle/arithmetic/functions.h"

#include <gtest/gtest.h>

#include "oracle/arithmetic/reductions.h"

namespace lockstep::oracle {
namespace {

std::uint32_t after(float (*function)(float), std::uint32_t x) {
  return bits(function(from_bits(x)));
}

TEST(functions, have_the_bits_of_the_vectors) {
  const auto e = [](float x) { return exp(x); };
  EXPECT_EQ(after(e, 0x3f800000), 0x402df854u);
  EXPECT_EQ(after(e, 0xc1a40000), 0x30abd1d8u);
  EXPECT_EQ(after(e, 0xc2c80000), 0x0000001bu);
  EXPECT_EQ(after(e, 0x42b10000), 0x7f4cdcc3u);
  EXPECT_EQ(after(e, 0x42b20000), 0x7f800000u);
  const auto en = [](float x) { return expn(x); };
  EXPECT_EQ(after(en, 0xbf000000), 0x3f1b4598u);
  EXPECT_EQ(after(en, 0xc2ae0000), 0x00b33687u);
  EXPECT_EQ(after(en, 0xc2ae051f), 0u);
  EXPECT_EQ(after(en, 0xff800000), 0u);
  const auto lg = [](float x) { return log(x); };
  EXPECT_EQ(after(lg, 0x40400000), 0x3f8c9f54u);
  EXPECT_EQ(after(lg, 0x00000001), 0xc2ce8ed0u);
  EXPECT_EQ(after(lg, 0x00000000), 0xff800000u);
  const auto sp = [](float x) { return softplus(x); };
  EXPECT_EQ(after(sp, 0xc0000000), 0x3e01f96au);
  EXPECT_EQ(after(sp, 0x00000000), 0x3f317218u);
  EXPECT_EQ(after(sp, 0x41a00000), 0x41a00000u);
  EXPECT_EQ(after([](float x) { return sigmoid(x); }, 0xc0400000), 0x3d4241a2u);
  const auto sl = [](float x) { return silu(x); };
  EXPECT_EQ(after(sl, 0x3fc00000), 0x3f9cf96bu);
  EXPECT_EQ(after(sl, 0x80000000), 0x80000000u);
  const auto ds = [](float x) { return dsilu(x); };
  EXPECT_EQ(after(ds, 0x3fc00000), 0x3f854921u);
  EXPECT_EQ(after(ds, 0xc0800000), 0xbd57b6d9u);
  const auto er = [](float x) { return erf(x); };
  EXPECT_EQ(after(er, 0x3e99999a), 0x3ea841c5u);
  EXPECT_EQ(after(er, 0xbfc00000), 0xbf7752abu);
  EXPECT_EQ(after([](float x) { return rsqrt(x); }, 0x40400000), 0x3f13cd3au);
  EXPECT_EQ(after([](float x) { return sqrt(x); }, 0x00000003), 0x1a9cc471u);
}

TEST(functions, sine_and_cosine_have_the_bits_of_the_vectors) {
  float sine, cosine;
  sincos(from_bits(0x42c80000), sine, cosine);
  EXPECT_EQ(bits(sine), 0xbf01a12eu);
  EXPECT_EQ(bits(cosine), 0x3f5cc0eeu);
  sincos(from_bits(0x45fff800), sine, cosine);
  EXPECT_EQ(bits(sine), 0xbf435469u);
}

TEST(functions, turn_every_nan_into_one) {
  for (const std::uint32_t nan : {0x7f800001u, 0xffc00000u}) {
    EXPECT_EQ(after([](float x) { return exp(x); }, nan), 0x7fffffffu);
    EXPECT_EQ(after([](float x) { return expn(x); }, nan), 0x7fffffffu);
    EXPECT_EQ(after([](float x) { return log(x); }, nan), 0x7fffffffu);
    EXPECT_EQ(after([](float x) { return erf(x); }, nan), 0x7fffffffu | (nan & 0x80000000u));
  }
  EXPECT_EQ(after([](float x) { return log(x); }, 0xbf800000), 0x7fffffffu);
  EXPECT_EQ(after([](float x) { return log(x); }, 0x7f800000), 0x7f800000u);
}

// The double instantiation is the same mathematical function: within a few ulp of fp32 everywhere.
TEST(functions, agree_with_double) {
  const double bound = 4 * 0x1p-23;
  const auto close = [bound](float got, double want) {
    return std::abs(got - want) <= bound * std::abs(want);
  };
  for (int i = -800; i <= 800; ++i) {
    const float x = static_cast<float>(i) * 0.1f + 0.0123f;
    const double wide = x;
    EXPECT_TRUE(close(exp(x), exp(wide))) << x;
    EXPECT_TRUE(x > 0 || close(expn(x), expn(wide))) << x;
    EXPECT_TRUE(x < 0 || close(log(x), log(wide))) << x;
    EXPECT_TRUE(close(softplus(x), softplus(wide))) << x;
    EXPECT_TRUE(close(silu(x), silu(wide))) << x;
    // dsilu = s (1 + x (1 - s)) multiplies the rounding of s, about 1.5 ulp of 1 at most, by x; a
    // few ulp for the rest.
    EXPECT_LE(std::abs(dsilu(x) - dsilu(wide)), (std::abs(wide) + 4) * 0x1p-23) << x;
  }
}

TEST(bf16, stores_by_rounding_to_even) {
  const std::uint32_t from[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3eaaaaab, 0x7f7fffff,
                                0x00008000, 0x00018000, 0x80000001, 0xff800001};
  const std::uint16_t to[] = {0x3f80, 0x3f82, 0x3f81, 0x3eab, 0x7f80,
                              0x0000, 0x0002, 0x8000, 0x7fff};
  for (int k = 0; k < 9; ++k) EXPECT_EQ(to_bf16(from_bits(from[k])), to[k]) << std::hex << from[k];
}

TEST(primitives, a_chain_ends_without_the_sign_of_zero) {
  const float product = fma(from_bits(0x8da24260), from_bits(0x0da24260), 0.0f);
  EXPECT_EQ(bits(product), 0x80000000u);
  EXPECT_EQ(bits(add(product, 0.0f)), 0u);
}

TEST(reductions, have_the_bits_of_the_vectors) {
  const auto inverse = [](std::int64_t e) { return div(1.0f, static_cast<float>(e + 1)); };
  const auto add_inverse = [=](std::int64_t e, float acc) { return add(acc, inverse(e)); };
  EXPECT_EQ(bits(r128<float>(300, [](std::int64_t e,
                                     float acc) { return add(acc, static_cast<float>(e + 1)); })),
            0x47305e00u);
  EXPECT_EQ(bits(r128<float>(300, add_inverse)), 0x40c90b94u);
  EXPECT_EQ(bits(r128<float>(300,
                             [](std::int64_t e, float acc) {
                               const float x = div(static_cast<float>(e + 1), 7.0f);
                               return fma(x, x, acc);
                             })),
            0x48344437u);
  EXPECT_EQ(bits(r1024<float>(3000, add_inverse)), 0x4109570au);
  const auto column = [=](std::int64_t i, std::int64_t, float p) { return add(p, inverse(i)); };
  EXPECT_EQ(bits(column_sums<float>(300, 1, column)[0]), 0x40c90b94u);
  float chain = 0;
  for (int i = 0; i < 300; ++i) chain = add(chain, inverse(i));
  EXPECT_EQ(bits(chain), 0x40c90b98u);
}

}  // namespace
}  // namespace lockstep::oracle
