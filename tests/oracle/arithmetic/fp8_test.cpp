// fp8: the vectors of arithmetic.md 5.6, and the fast forms of DOT8 against the scalar text.
#include "oracle/arithmetic/fp8.h"

#include "oracle/arithmetic/fp8_fast.h"
#include "oracle/arithmetic/fp8_scaling.h"
#include "tests/oracle/arithmetic/fda16_cases.h"

namespace lockstep::oracle {
namespace {

using Codes = std::vector<std::uint8_t>;

int k_of(std::uint32_t amax, const Fp8Type& type) { return fp8_exponent(amax, type); }

TEST(fp8, exponents_have_the_vectors) {
  const std::tuple<std::uint32_t, int, int> vectors[] = {{0x3fe00000, 8, 15},
                                                         {0x3fe10000, 7, 14},
                                                         {0x00010000, 40, 61},
                                                         {0x2b8c0000, 40, 55},
                                                         {0x7f7f0000, -40, -61}};
  for (const auto& [amax, t4, t5] : vectors) {
    EXPECT_EQ(k_of(amax, kE4m3), t4) << std::hex << amax;
    EXPECT_EQ(k_of(amax, kE5m2), t5) << std::hex << amax;
  }
  for (const std::uint32_t none : {0u, 0x7f800000u, 0x7fc00000u}) EXPECT_EQ(k_of(none, kE4m3), 0);
}

TEST(fp8, codes_have_the_vectors) {
  const float inf = from_bits(0x7f800000u);
  const std::tuple<float, int, int> vectors[] = {
      {464.0f, 0x7e, 0x5f},          {17.0f, 0x58, 0x4c},
      {19.0f, 0x5a, 0x4d},           {0x1p-10f, 0x00, 0x14},
      {0x1.fp-7f, 0x08, 0x24},       {-9.0f, 0xd1, 0xc8},
      {0x1.8p-17f, 0x00, 0x01},      {inf, 0x7e, 0x7b},
      {widened(0x7fc0), 0x7f, 0x7f}, {widened(0xffc1), 0x7f, 0x7f},
      {widened(0xff80), 0xfe, 0xfb}, {-0.0f, 0x80, 0x80}};
  for (const auto& [x, t4, t5] : vectors) {
    EXPECT_EQ(fp8_code(x, 0, kE4m3), t4) << x;
    EXPECT_EQ(fp8_code(x, 0, kE5m2), t5) << x;
  }
}

// The value of a code, by its definition in the real numbers.
double value_of(std::uint8_t code, const Fp8Type& type) {
  const Decoded x = decode_fp8(code, type);
  return std::ldexp(static_cast<double>(x.significand), x.exponent - type.fraction) *
         (x.negative ? -1 : 1);
}

// The nearest code found by looking at all of them; between two, the even one.
std::uint8_t nearest_of_all(double x, const Fp8Type& type) {
  const double most = value_of(type.top, type);
  std::uint8_t best = std::fabs(x) >= most ? type.top : 0;
  for (int code = 0; std::fabs(x) < most && code <= type.top; ++code) {
    const double far = std::fabs(value_of(static_cast<std::uint8_t>(code), type) - std::fabs(x));
    const double before = std::fabs(value_of(best, type) - std::fabs(x));
    if (far < before || (far == before && code % 2 == 0)) best = static_cast<std::uint8_t>(code);
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

TEST(fp8, codes_of_all_bf16_numbers_are_the_nearest) {
  for (const Fp8Type& type : {kE4m3, kE5m2}) {
    for (std::uint32_t half = 0; half < 0x10000u; half += 3) {
      const float x = widened(half);
      if (!std::isfinite(x)) continue;
      ASSERT_EQ(fp8_code(x, 0, type), nearest_of_all(x, type)) << std::hex << half;
    }
  }
}

// All bf16 numbers, infinities and NaN too, and some numbers of fp32, by exponents up to the caps.
TEST(fp8, codes_of_many_numbers_are_those_of_each) {
  std::vector<float> x;
  for (std::uint32_t half = 0; half < 0x10000u; ++half) x.push_back(widened(half));
  for (std::uint32_t i = 0; i < 0x10000u; ++i) x.push_back(from_bits(i * 2654435761u));
  std::vector<std::uint8_t> codes(x.size());
  for (const Fp8Type& type : {kE4m3, kE5m2}) {
    for (int k = -type.cap; k <= type.cap; k += k % 4 == 0 ? 1 : 3) {
      fp8_codes(x.data(), static_cast<std::int64_t>(x.size()), k, type, codes.data());
      for (std::size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(codes[i], fp8_code(x[i], k, type)) << std::hex << bits(x[i]) << " by " << k;
    }
  }
}

TEST(fp8, the_exponent_is_the_largest_that_does_not_saturate) {
  for (const Fp8Type& type : {kE4m3, kE5m2}) {
    const double most = value_of(type.top, type);
    for (std::uint32_t half = 0x2000u; half < 0x6000u; ++half) {
      const float x = widened(half);
      const int k = fp8_exponent(bits(x), type);
      if (std::abs(k) == type.cap) continue;
      ASSERT_LE(std::ldexp(static_cast<double>(x), k), most) << std::hex << half;
      ASSERT_GT(std::ldexp(static_cast<double>(x), k + 1), most) << std::hex << half;
    }
  }
}

TEST(fp8, every_code_comes_back) {
  for (const Fp8Type& type : {kE4m3, kE5m2}) {
    for (int code = 0; code < 256; ++code) {
      if ((code & 0x7f) > type.top) continue;
      const double x = code == 0x80 ? -0.0 : value_of(static_cast<std::uint8_t>(code), type);
      EXPECT_EQ(fp8_code(static_cast<float>(x), 0, type), code);
    }
  }
}

std::uint32_t step(const Codes& a, const Fp8Type& type_a, const Codes& b, std::uint32_t c) {
  return bits(fda32(a.data(), type_a, b.data(), kE4m3, static_cast<int>(a.size()), from_bits(c)));
}

TEST(fp8, fda32_has_the_vectors) {
  EXPECT_EQ(step(Codes(32, 0x38), kE4m3, Codes(32, 0x38), 0), 0x42000000u);
  EXPECT_EQ(step({}, kE4m3, {}, 0x3f801fff), 0x3f801c00u);
  EXPECT_EQ(step({0x38, 0xb8}, kE4m3, {0x38, 0x38}, 0x80000000), 0u);
  EXPECT_EQ(step({0x7e, 0x01}, kE4m3, {0x7e, 0x01}, 0), 0x48440000u);
  EXPECT_EQ(step({0x3c, 0xbd}, kE5m2, {0x3b, 0x39}, 0x3d4ccccd), 0x3c990000u);
  EXPECT_EQ(step({0x01}, kE5m2, {0x01}, 0), 0x33000000u);
  EXPECT_EQ(step({0x7c}, kE5m2, {0x38}, 0), 0x7f800000u);
  EXPECT_EQ(step({0x7c}, kE5m2, {0x00}, 0), 0x7fffffffu);
  EXPECT_EQ(step({0x7f}, kE4m3, {0x00}, 0), 0x7fffffffu);
}

// A lone subnormal sum keeps the bits on 2^-139.
TEST(fp8, fda32_cuts_a_lone_subnormal) {
  EXPECT_EQ(step({}, kE4m3, {}, 0x000017ff), 0x00001400u);
  EXPECT_EQ(step({}, kE4m3, {}, 0x800003ff), 0u);
}

TEST(fp8, dot8_has_the_vectors) {
  Codes a, b, e;
  for (int k = 0; k < 288; ++k) {
    a.push_back(static_cast<std::uint8_t>((37 * k + 11) % 127 + (5 * k % 3 == 0 ? 128 : 0)));
    b.push_back(static_cast<std::uint8_t>((53 * k + 29) % 127 + (7 * k % 4 == 1 ? 128 : 0)));
    e.push_back(static_cast<std::uint8_t>((71 * k + 3) % 124 + (k % 5 == 2 ? 128 : 0)));
  }
  EXPECT_EQ(bits(dot8(a.data(), 1, kE4m3, b.data(), 1, kE4m3, 288)), 0xc5c79000u);
  EXPECT_EQ(bits(dot8(e.data(), 1, kE5m2, b.data(), 1, kE4m3, 288)), 0x4ae66c00u);
}

TEST(fp8, delayed_scaling_has_the_vectors) {
  const std::uint32_t pending[] = {0x3fc00000, 0, 0x43e10000, 0x7f800000, 0x3e800000, 0x00010000};
  const auto roll = [&](bool most_recent, const Fp8Type& type) {
    Fp8Scaling state(2);
    std::vector<int> k;
    for (std::int64_t step = 0; step < 6; ++step) {
      state.pending = pending[step];
      state.roll(step, {most_recent, 1}, type);
      k.push_back(state.exponent);
    }
    return k;
  };
  EXPECT_EQ(roll(false, kE4m3), (std::vector<int>{7, 7, -2, -2, -2, 9}));
  EXPECT_EQ(roll(false, kE5m2), (std::vector<int>{14, 14, 5, 5, 5, 16}));
  EXPECT_EQ(roll(true, kE4m3), (std::vector<int>{7, 7, -2, -2, 9, 39}));
  EXPECT_EQ(roll(true, kE5m2), (std::vector<int>{14, 14, 5, 5, 16, 60}));
}

// How the codes of a random factor are spread.
enum class Spread { any, near, far, zeros, cancelling, runs, special };
constexpr Spread kSpreads[] = {Spread::any,        Spread::near, Spread::far,    Spread::zeros,
                               Spread::cancelling, Spread::runs, Spread::special};

std::uint8_t code(Spread spread, Words& words, const Fp8Type& type, std::int64_t k) {
  const auto sign = static_cast<std::uint8_t>(words.next() & 0x80u);
  const int fields = type.top >> type.fraction, part = words.between(0, (1 << type.fraction) - 1);
  const auto of_field = [&](int low, int high) {
    const int field = std::clamp(words.between(low, high), 0, fields);
    return static_cast<std::uint8_t>(sign | std::min<int>(field << type.fraction | part, type.top));
  };
  switch (spread) {
    case Spread::near:
      return of_field(type.bias - 2, type.bias + 2);
    case Spread::far:
      return words.between(0, 9) == 0 ? of_field(fields - 1, fields) : of_field(0, 3);
    case Spread::zeros:
      return words.between(0, 2) == 0 ? of_field(0, fields) : sign;
    case Spread::cancelling:
      return static_cast<std::uint8_t>((k % 2) << 7 | 0x38);
    case Spread::runs:  // Magnitudes that change by run of 128, so that its promotion shows.
      return of_field(static_cast<int>(k / 128 * 5 % fields),
                      static_cast<int>(k / 128 * 5 % fields) + 2);
    case Spread::special:
      return words.between(0, 200) == 0 ? static_cast<std::uint8_t>(words.next() & 0xffu)
                                        : of_field(0, fields);
    case Spread::any:
      return of_field(0, fields);
  }
  return 0;
}

TEST(fp8, the_fast_forms_have_the_bits_of_the_text) {
  Words words(81);
  for (int round = 0; round < 140; ++round) {
    const Spread spread = kSpreads[round % 7];
    const Fp8Type& type_a = words.between(0, 1) == 0 ? kE4m3 : kE5m2;
    const std::int64_t rows = words.between(1, 40), cols = words.between(1, 40),
                       depth = words.between(0, 3) == 0 ? words.between(1, 40)
                                                        : words.between(100, 500);
    Codes a, b;
    for (std::int64_t e = 0; e < rows * depth; ++e)
      a.push_back(code(spread, words, type_a, e % depth));
    for (std::int64_t e = 0; e < depth * cols; ++e)
      b.push_back(code(spread, words, kE4m3, e / cols));
    std::vector<float> want(rows * cols), got(rows * cols);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j)
        want[i * cols + j] =
            dot8(a.data() + i * depth, 1, type_a, b.data() + j, cols, kE4m3, depth);
    }
    for (const Fp8Form form : {Fp8Form::scalar, Fp8Form::avx2, Fp8Form::avx512}) {
      if (!supported(form)) continue;
      fp8_dots(rows, cols, depth, {a.data(), depth, 1}, type_a, {b.data(), cols}, kE4m3, got.data(),
               cols, form);
      for (std::size_t e = 0; e < want.size(); ++e)
        ASSERT_EQ(bits(got[e]), bits(want[e])) << "form " << static_cast<int>(form) << " spread "
                                               << static_cast<int>(spread) << " depth " << depth;
    }
  }
}

// Runs of 128 are added in fp32: one chain through all terms would give something else.
TEST(fp8, promotion_shows_on_spread_magnitudes) {
  Words words(5);
  int differ = 0;
  for (int round = 0; round < 200; ++round) {
    Codes a, b;
    for (std::int64_t k = 0; k < 384; ++k) {
      a.push_back(code(Spread::runs, words, kE4m3, k));
      b.push_back(code(Spread::near, words, kE4m3, k));
    }
    float chain = 0.0f;
    for (std::int64_t k = 0; k < 384; k += 32)
      chain = fda32(a.data() + k, kE4m3, b.data() + k, kE4m3, 32, chain);
    differ += bits(chain) != bits(dot8(a.data(), 1, kE4m3, b.data(), 1, kE4m3, 384)) ? 1 : 0;
  }
  EXPECT_GT(differ, 100);
}

}  // namespace
}  // namespace lockstep::oracle
