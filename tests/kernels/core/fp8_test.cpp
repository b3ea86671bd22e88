// The vectors of arithmetic.md 5.6 in the scalar model, and what the text says of its values.
#include "kernels/core/fp8.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {
namespace {

testing::AssertionResult has_bits(float x, std::uint32_t want) {
  if (bits(x) == want) return testing::AssertionSuccess();
  return testing::AssertionFailure() << std::hex << bits(x) << " instead of " << want;
}

TEST(Fp8, HasTheExponentsOfTheContract) {
  const std::array<std::array<std::uint32_t, 3>, 5> rows = {{{0x3fe00000, 8, 15},
                                                             {0x3fe10000, 7, 14},
                                                             {0x00010000, 40, 61},
                                                             {0x2b8c0000, 40, 55},
                                                             {0x7f7f0000, -40u, -61u}}};
  for (const auto& [amax, x, dy] : rows) {
    EXPECT_EQ(fp8_exponent<e4m3>(amax), static_cast<std::int32_t>(x)) << std::hex << amax;
    EXPECT_EQ(fp8_exponent<e5m2>(amax), static_cast<std::int32_t>(dy)) << std::hex << amax;
  }
  for (const std::uint32_t none : {0u, 0x7f800000u, 0x7fc00000u}) {
    EXPECT_EQ(fp8_exponent<e4m3>(none), 0);
    EXPECT_EQ(fp8_exponent<e5m2>(none), 0);
  }
  EXPECT_EQ(fp8_amax(bf16{0x8001}), 0x00010000u);
  EXPECT_EQ(fp8_amax(bf16{0xffc1}), 0x7fc10000u);
}

TEST(Fp8, HasTheCodesOfTheContract) {
  struct Row {
    float x;
    int e4m3_code, e5m2_code;
  };
  const Row rows[] = {{464, 0x7e, 0x5f},
                      {17, 0x58, 0x4c},
                      {19, 0x5a, 0x4d},
                      {0x1p-10f, 0x00, 0x14},
                      {0x1.fp-7f, 0x08, 0x24},
                      {-9, 0xd1, 0xc8},
                      {0x1.8p-17f, 0x00, 0x01},
                      {infinity(), 0x7e, 0x7b},
                      {load(bf16{0x7fc0}), 0x7f, 0x7f},
                      {load(bf16{0xffc1}), 0x7f, 0x7f},
                      {load(bf16{0xff80}), 0xfe, 0xfb},
                      {load(bf16{0x8000}), 0x80, 0x80}};
  for (const Row& r : rows) {
    EXPECT_EQ(fp8_code<e4m3>(st<bf16>(r.x), 0).bits, r.e4m3_code) << r.x;
    EXPECT_EQ(fp8_code<e5m2>(st<bf16>(r.x), 0).bits, r.e5m2_code) << r.x;
  }
}

// The nearest code, the even one of two: found by looking at all of them in double.
template <class F>
void expect_nearest_codes() {
  for (std::uint32_t b = 0; b < 0x7f80; ++b) {
    for (const std::int32_t k : {-40, -7, 0, 11, F::kCap}) {
      const float v = mul(load(bf16{static_cast<std::uint16_t>(b)}), fp8_power(k));
      if (v > load_fp8(F{F::kTop}) || v == infinity()) {
        ASSERT_EQ(fp8_code_of<F>(v).bits, F::kTop) << v;
        continue;
      }
      int nearest = 0;
      for (int c = 1; c <= static_cast<int>(F::kTop); ++c) {
        const auto distance = [&](int code) {
          return std::abs(double(load_fp8(F{static_cast<std::uint8_t>(code)})) - double(v));
        };
        if (distance(c) > distance(nearest)) break;
        if (distance(c) < distance(nearest) || c % 2 == 0) nearest = c;
      }
      ASSERT_EQ(fp8_code_of<F>(v).bits, nearest) << v;
      ASSERT_EQ(fp8_code_of<F>(neg(v)).bits, nearest | 0x80) << v;
    }
  }
}
TEST(Fp8, CodesAreTheNearest) {
  expect_nearest_codes<e4m3>();
  expect_nearest_codes<e5m2>();
}
// k(a) does not saturate, and k(a) + 1 does, wherever the cap does not hold it.
template <class F>
void expect_the_largest_exponent() {
  const double top = load_fp8(F{F::kTop});
  for (std::uint32_t b = 0x0080; b < 0x7f80; ++b) {
    const bf16 x{static_cast<std::uint16_t>(b)};
    const std::int32_t k = fp8_exponent<F>(fp8_amax(x));
    ASSERT_LE(std::abs(k), F::kCap);
    if (std::abs(k) == F::kCap) continue;
    ASSERT_LE(std::ldexp(double(load(x)), k), top) << b;
    ASSERT_GT(std::ldexp(double(load(x)), k + 1), top) << b;
  }
}
TEST(Fp8, ExponentsAreTheLargestThatDoNotSaturate) {
  expect_the_largest_exponent<e4m3>();
  expect_the_largest_exponent<e5m2>();
}

template <class A, class B>
float step_of(std::vector<A> a, std::vector<B> b, std::uint32_t c) {
  return fda32(static_cast<int>(a.size()), a.data(), 1, b.data(), 1, from_bits(c));
}
TEST(Fda32, HasTheVectorsOfTheContract) {
  const std::vector<e4m3> ones(32, e4m3{0x38});
  EXPECT_TRUE(has_bits(step_of(ones, ones, 0), 0x42000000));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({}, {}, 0x3f801fff), 0x3f801c00));
  EXPECT_TRUE(
      has_bits(step_of<e4m3, e4m3>({{0x38}, {0xb8}}, {{0x38}, {0x38}}, 0x80000000), 0x00000000));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({{0x7e}, {0x01}}, {{0x7e}, {0x01}}, 0), 0x48440000));
  EXPECT_TRUE(
      has_bits(step_of<e5m2, e4m3>({{0x3c}, {0xbd}}, {{0x3b}, {0x39}}, 0x3d4ccccd), 0x3c990000));
  EXPECT_TRUE(has_bits(step_of<e5m2, e4m3>({{0x01}}, {{0x01}}, 0), 0x33000000));
  EXPECT_TRUE(has_bits(step_of<e5m2, e4m3>({{0x7c}}, {{0x38}}, 0), 0x7f800000));
  EXPECT_TRUE(has_bits(step_of<e5m2, e4m3>({{0x7c}}, {{0x00}}, 0), 0x7fffffff));
}
// Beyond the vectors: specials wherever they stand, and a lone c.
TEST(Fda32, KnowsInfinitiesNaNAndALoneStart) {
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({{0x7f}}, {{0x00}}, 0), 0x7fffffff));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({{0xff}}, {{0x38}}, 0), 0x7fffffff));
  EXPECT_TRUE(has_bits(step_of<e5m2, e5m2>({{0x7d}}, {{0x38}}, 0), 0x7fffffff));
  EXPECT_TRUE(has_bits(step_of<e5m2, e5m2>({{0xfc}}, {{0x38}}, 0), 0xff800000));
  EXPECT_TRUE(has_bits(step_of<e5m2, e5m2>({{0xfc}}, {{0x7c}}, 0), 0xff800000));
  EXPECT_TRUE(has_bits(step_of<e5m2, e5m2>({{0xfc}}, {{0x7c}}, 0x7f800000), 0x7fffffff));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({{0x38}}, {{0x38}}, 0xff800000), 0xff800000));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({}, {}, 0x80000fff), 0x80000c00));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({}, {}, 0x7f7fffff), 0x7f7ffc00));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({{0x00}}, {{0x80}}, 0x00000400), 0x00000400));
  EXPECT_TRUE(has_bits(step_of<e4m3, e4m3>({}, {}, 0x000003ff), 0x00000000));
}
TEST(Dot8, HasTheVectorsOfTheContract) {
  std::vector<e4m3> a(288), b(288);
  std::vector<e5m2> e(288);
  for (int k = 0; k < 288; ++k) {
    at(a, k).bits = static_cast<std::uint8_t>((37 * k + 11) % 127 + 128 * (5 * k % 3 == 0));
    at(b, k).bits = static_cast<std::uint8_t>((53 * k + 29) % 127 + 128 * (7 * k % 4 == 1));
    at(e, k).bits = static_cast<std::uint8_t>((71 * k + 3) % 124 + 128 * (k % 5 == 2));
  }
  EXPECT_TRUE(has_bits(dot8(288, a.data(), 1, b.data(), 1), 0xc5c79000));
  EXPECT_TRUE(has_bits(dot8(288, e.data(), 1, b.data(), 1), 0x4ae66c00));
}

// ---- Whole operands -----------------------------------------------------------------------------
struct Quantised {
  std::int32_t k = 0;
  std::vector<std::uint8_t> codes;
};
template <class F>
Quantised quantised(const std::vector<bf16>& x, const std::vector<bool>& in_use) {
  Quantised result;
  std::uint32_t amax = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (in_use[i] && fp8_amax(x[i]) > amax) amax = fp8_amax(x[i]);
  }
  result.k = fp8_exponent<F>(amax);
  for (std::size_t i = 0; i < x.size(); ++i)
    result.codes.push_back(in_use[i] ? fp8_code<F>(x[i], result.k).bits : std::uint8_t{0});
  return result;
}
template <class A, class B>
float scaled_dot(std::int64_t n, const Quantised& a, std::size_t a0, std::int64_t a_stride,
                 const Quantised& b, std::size_t b0, std::int64_t b_stride) {
  std::vector<A> x;
  std::vector<B> y;
  for (std::int64_t k = 0; k < n; ++k) {
    x.push_back(A{at(a.codes, static_cast<std::int64_t>(a0) + k * a_stride)});
    y.push_back(B{at(b.codes, static_cast<std::int64_t>(b0) + k * b_stride)});
  }
  return mul(dot8(n, x.data(), 1, y.data(), 1), fp8_power(-(a.k + b.k)));
}

// dW of one weight over rows first <= i < end, of which those in use take part.
struct Gradient {
  std::int32_t kx, ky;
  float g;
};
Gradient weight_gradient(int first, int end, bool drops_thirds) {
  std::vector<bf16> x, dy;
  std::vector<bool> in_use;
  for (int i = first; i < end; ++i) {
    x.push_back(st<bf16>(mul(static_cast<float>((53 * i + 29) % 127 - 63), fp8_power(-(i % 7)))));
    dy.push_back(
        st<bf16>(mul(static_cast<float>((71 * i + 3) % 123 - 61), fp8_power(i % 11 - 12))));
    in_use.push_back(!drops_thirds || i % 3 != 0);
  }
  const Quantised x8 = quantised<e4m3>(x, in_use), y8 = quantised<e5m2>(dy, in_use);
  return {x8.k, y8.k, scaled_dot<e5m2, e4m3>(end - first, y8, 0, 1, x8, 0, 1)};
}
TEST(Fp8, HasTheWeightGradientsOfTheContract) {
  const Gradient first = weight_gradient(0, 33, false), second = weight_gradient(33, 200, false);
  EXPECT_EQ(first.kx, 2);
  EXPECT_EQ(second.kx, 2);
  EXPECT_EQ(first.ky, 12);
  EXPECT_EQ(second.ky, 11);
  EXPECT_TRUE(has_bits(first.g, 0xc4353000));
  EXPECT_TRUE(has_bits(second.g, 0x44460600));
  EXPECT_TRUE(has_bits(add(first.g, second.g), 0x4286b000));
  EXPECT_TRUE(has_bits(weight_gradient(0, 200, false).g, 0x4287a000));
  EXPECT_TRUE(has_bits(weight_gradient(0, 200, true).g, 0x44467200));
}
TEST(Fp8, HasTheLayerOfTheContract) {
  const std::vector<bool> rows = {true, true, false, false, true, true}, all(4, true);
  const auto of = [](std::vector<std::uint16_t> b) {
    std::vector<bf16> x;
    for (const std::uint16_t one : b) x.push_back(bf16{one});
    return x;
  };
  const Quantised x = quantised<e4m3>(of({0x3fc0, 0xbe80, 0, 0, 0x4040, 0x3c00}), rows);
  const Quantised w = quantised<e4m3>(of({0x3f00, 0xc000, 0x3cf6, 0x3f80}), all);
  const Quantised dy = quantised<e5m2>(of({0x3a83, 0xb727, 0, 0, 0x2edc, 0x3983}), rows);
  EXPECT_EQ(x.k, 7);
  EXPECT_EQ(w.k, 7);
  EXPECT_EQ(dy.k, 25);
  EXPECT_EQ(x.codes, (std::vector<std::uint8_t>{0x74, 0xe0, 0, 0, 0x7c, 0x38}));
  EXPECT_EQ(w.codes, (std::vector<std::uint8_t>{0x68, 0xf8, 0x47, 0x70}));
  EXPECT_EQ(dy.codes, (std::vector<std::uint8_t>{0x78, 0xdd, 0, 0, 0x1b, 0x70}));
  const std::array<std::uint16_t, 6> y = {0x3fa0, 0xbe53, 0, 0, 0x3fbe, 0x3dc4};
  const std::array<std::uint16_t, 6> dx = {0x3a00, 0xbb01, 0, 0, 0x36f0, 0x3980};
  const std::array<std::uint32_t, 4> dw = {0x3ac00000, 0xb9800000, 0x3a3c4000, 0x36900000};
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 2; ++j) {
      EXPECT_EQ(st<bf16>(scaled_dot<e4m3, e4m3>(2, x, 2 * i, 1, w, 2 * j, 1)).bits, y[2 * i + j]);
      EXPECT_EQ(st<bf16>(scaled_dot<e5m2, e4m3>(2, dy, 2 * i, 1, w, j, 2)).bits, dx[2 * i + j]);
    }
  }
  for (std::size_t o = 0; o < 2; ++o) {
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_TRUE(has_bits(scaled_dot<e5m2, e4m3>(3, dy, o, 2, x, k, 2), dw[2 * o + k]));
  }
}

}  // namespace
}  // namespace lockstep
