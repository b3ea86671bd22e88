// FDA16: the vectors of arithmetic.md 4, and the fast forms against the scalar text.
#include "oracle/arithmetic/fda16.h"

#include <ctime>

#include "tests/oracle/arithmetic/fda16_cases.h"

namespace lockstep::oracle {
namespace {

using Halves = std::vector<std::uint16_t>;

// One step by the scalar text and by every form that this processor has; all must agree.
std::uint32_t step(const Halves& a, const Halves& b, std::uint32_t c) {
  const auto count = static_cast<int>(a.size());
  const std::uint32_t want = bits(fda16(a.data(), b.data(), count, from_bits(c)));
  std::vector<float> left, right;
  for (int k = 0; k < count; ++k) {
    left.push_back(widened(a[k]));
    right.push_back(widened(b[k]));
  }
  for (const Fda16Form form : {Fda16Form::scalar, Fda16Form::avx2, Fda16Form::avx512}) {
    if (!supported(form)) continue;
    float sum = from_bits(c);
    fda16_dots(1, 1, Terms{.last = count}, count, Left<float>{left.data(), count, 1},
               Right<float>{right.data(), 1}, &sum, 1, Chain::middle, form);
    EXPECT_EQ(bits(sum), want) << "form " << static_cast<int>(form);
  }
  return want;
}

TEST(fda16, has_the_bits_of_the_vectors) {
  Halves counting;
  for (int k = 1; k <= 16; ++k) counting.push_back(to_bf16(static_cast<float>(k)));
  EXPECT_EQ(step(counting, Halves(16, 0x3f80), 0), 0x43080000u);
  const Halves tenth(16, 0x3dcd), zero(16, 0);
  EXPECT_EQ(step(tenth, tenth, 0), 0x3e242900u);
  EXPECT_EQ(step(tenth, tenth, 0x3f800000), 0x3f948520u);
  EXPECT_EQ(step(tenth, tenth, 0xcb800000), 0xcb800000u);
  EXPECT_EQ(step(zero, zero, 0x80000000), 0u);
  EXPECT_EQ(step(zero, zero, 0x3f800001), 0x3f800001u);
  EXPECT_EQ(step(zero, zero, 0x00000001), 0x00000001u);
  const Halves ones{0x3f80, 0x3f80}, opposite{0x3f80, 0xbf80};
  EXPECT_EQ(step(ones, opposite, 0x30800000), 0u);
  EXPECT_EQ(step(ones, opposite, 0x3f800001), 0x3f800001u);
  EXPECT_EQ(step({0x3f80}, {0x3f81}, 0x33000001), 0x3f810000u);
  EXPECT_EQ(step({0x3f80}, {0x3f81}, 0xb3000001), 0x3f80ffffu);
  EXPECT_EQ(step({0x0001}, {0x3f80}, 0), 0x00010000u);
  EXPECT_EQ(step({0x0100}, {0x0100}, 0), 0u);
  EXPECT_EQ(step({0x7f00}, {0x4080}, 0), 0x7f800000u);
  EXPECT_EQ(step({0x7f80}, {0x0000}, 0), 0x7fffffffu);
}

TEST(fda16, treats_specials_by_its_first_line) {
  EXPECT_EQ(step({0x7f80}, {0xbf80}, 0x3f800000), 0xff800000u);
  EXPECT_EQ(step({0x7f80}, {0x3f80}, 0xff800000), 0x7fffffffu);
  EXPECT_EQ(step({0x7f80, 0xff80}, {0x3f80, 0x3f80}, 0), 0x7fffffffu);
  EXPECT_EQ(step({0xffc0}, {0x0000}, 0), 0x7fffffffu);
  EXPECT_EQ(step({0x0000}, {0x0000}, 0xff800001), 0x7fffffffu);
  EXPECT_EQ(step({0x0000}, {0x7f7f}, 0x7f800000), 0x7f800000u);
}

// A zero takes no part in E, whatever the other factor is.
TEST(fda16, keeps_small_terms_beside_zeros) {
  EXPECT_EQ(step({0x0000, 0x2000}, {0x7f7f, 0x2000}, 0x00800001), 0x01000000u);
}

// 2^-149 - 2^-159 and 2^-159: one subnormal number together, but both lose the bit of 2^-159 to the
// grid of 2^-158.
TEST(fda16, has_a_lowest_grid) {
  const Halves a{0x007c, 0x0001}, b{0x3404, 0x3280};
  EXPECT_EQ(step(a, b, 0), 0u);
  EXPECT_EQ(bits(fda16(a.data(), b.data(), 2, 0.0f, {.least_exponent = -200})), 1u);
}

TEST(dot, has_the_bits_of_the_vector) {
  std::vector<float> a, b;
  for (int k = 0; k < 32; ++k) {
    a.push_back(Bf16::st(div(static_cast<float>(k + 1), 7.0f)));
    b.push_back(Bf16::st(div(static_cast<float>((5 * k) % 11 - 5), 3.0f)));
  }
  Halves left, right;
  for (int k = 0; k < 32; ++k) {
    left.push_back(to_bf16(a[k]));
    right.push_back(to_bf16(b[k]));
  }
  EXPECT_EQ(bits(fda16_dot(left.data(), right.data(), 32, 0.0f)), 0xbfc16d80u);
  for (const Fda16Form form : {Fda16Form::scalar, Fda16Form::avx2, Fda16Form::avx512}) {
    if (!supported(form)) continue;
    float c = 1.0f;
    fda16_dots(1, 1, Terms{.last = 32}, 32, Left<float>{a.data(), 32, 1}, Right<float>{b.data(), 1},
               &c, 1, Chain::whole, form);
    EXPECT_EQ(bits(c), 0xbfc16d80u);
  }
}

// How many of 4000 dot products of 32 terms change with the parameters.
int changes(Family family, const Fda16Parameters& parameters) {
  Words words(11);
  int count = 0;
  for (int dot = 0; dot < 4000; ++dot) {
    const Product product = any_product(family, words, 1, 1, 32);
    Halves a, b;
    for (int k = 0; k < 32; ++k) {
      a.push_back(to_bf16(product.a[k]));
      b.push_back(to_bf16(product.b[k]));
    }
    const float want = fda16_dot(a.data(), b.data(), 32, product.c[0]);
    count +=
        bits(fda16_dot(a.data(), b.data(), 32, product.c[0], parameters)) != bits(want) ? 1 : 0;
  }
  return count;
}

// The families tell the contract's parameters from those of other architectures.
TEST(fda16, depends_on_every_parameter) {
  for (const int fraction : {23, 24, 26})
    EXPECT_GT(changes(Family::fifteen, {.fraction = fraction}), 50) << fraction;
  for (const int group : {4, 8}) EXPECT_GT(changes(Family::normal, {.group = group}), 50) << group;
  for (const int least : {-126, -132, -134, -200}) {
    EXPECT_GT(changes(Family::tiny, {.least_exponent = least}), 0) << least;
  }
}

TEST(forms, have_the_bits_of_the_scalar_text) {
  const std::int64_t dots = 50'000;  // For each family and form: more than 10^6.
  std::uint32_t seed = 0;
  for (const Fda16Form form : {Fda16Form::avx2, Fda16Form::avx512}) {
    if (!supported(form)) continue;
    for (const Family family : kFamilies)
      EXPECT_EQ(first_difference(form, family, ++seed, dots), "");
  }
}

// Each row takes its own terms; groups count from term 0 however many of their terms are taken.
TEST(forms, take_the_terms_of_each_row) {
  const std::int64_t rows = 45, cols = 21, depth = 45;
  Words words(5);
  const Product given = any_product(Family::normal, words, rows, cols, depth);
  const Terms lower{.last = 1, .last_step = 1}, upper{.first_step = 1, .last = depth};
  for (const Terms& terms :
       {lower, upper, Terms{.last = depth}, Terms{.last = 7, .last_step = 1}}) {
    std::vector<float> want = given.c;
    for (std::int64_t e = 0; e < rows * cols; ++e) {
      const std::int64_t i = e / cols,
                         first = std::max<std::int64_t>(0, terms.first + i * terms.first_step);
      const std::int64_t last = std::min(depth, terms.last + i * terms.last_step);
      for (std::int64_t k0 = 0; k0 < depth; k0 += 16) {
        Halves a(16, 0), b(16, 0);
        for (std::int64_t k = std::max(first, k0); k < std::min(last, k0 + 16); ++k) {
          a[k - k0] = to_bf16(given.a[i * depth + k]);
          b[k - k0] = to_bf16(given.b[k * cols + e % cols]);
        }
        want[e] = fda16(a.data(), b.data(), 16, want[e]);
      }
      want[e] = add(want[e], 0.0f);
    }
    std::vector<float> left = given.a;
    for (std::int64_t e = 0; e < rows * depth; ++e) {
      const std::int64_t i = e / depth, k = e % depth;
      const bool taken =
          k >= terms.first + i * terms.first_step && k < terms.last + i * terms.last_step;
      if (!taken) left[e] = from_bits(0x7fffffffu);  // Must not be looked at.
    }
    for (const Fda16Form form : {Fda16Form::scalar, Fda16Form::avx2, Fda16Form::avx512}) {
      if (!supported(form)) continue;
      std::vector<float> c = given.c;
      fda16_dots(rows, cols, terms, depth, Left<float>{left.data(), depth, 1},
                 Right<float>{given.b.data(), cols}, c.data(), cols, Chain::last, form);
      EXPECT_TRUE(same_bits(c, want)) << static_cast<int>(form);
    }
  }
}

TEST(forms, refuse_factors_that_are_no_bf16) {
  const float wide = 1.00001f, narrow = 1.0f;
  float c = 0;
  const auto dot = [&](const float& a, const float& b) {
    fda16_dots(1, 1, Terms{.last = 1}, 1, Left<float>{&a, 1, 1}, Right<float>{&b, 1}, &c, 1,
               Chain::whole);
  };
  EXPECT_THROW(dot(wide, narrow), std::logic_error);
  EXPECT_THROW(dot(narrow, wide), std::logic_error);
  EXPECT_NO_THROW(dot(narrow, narrow));
}

// Says how fast each form is, too.
TEST(forms, agree_on_a_long_product) {
  const std::int64_t n = 192, depth = 512;
  Words words(3);
  const Product given = any_product(Family::normal, words, n, n, depth);
  std::vector<float> want;
  for (const Fda16Form form : {Fda16Form::scalar, Fda16Form::avx2, Fda16Form::avx512}) {
    if (!supported(form)) continue;
    std::vector<float> c(n * n);
    const int repeats = form == Fda16Form::scalar ? 1 : 20;
    const std::clock_t start = std::clock();
    for (int r = 0; r < repeats; ++r) {
      fda16_dots(n, n, Terms{.last = depth}, depth, Left<float>{given.a.data(), depth, 1},
                 Right<float>{given.b.data(), n}, c.data(), n, Chain::whole, form);
    }
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const auto products = static_cast<double>(n * n * depth * repeats);
    std::printf("form %d: %.1f GFLOP/s\n", static_cast<int>(form), 2e-9 * products / seconds);
    if (form == Fda16Form::scalar) want = c;
    EXPECT_TRUE(same_bits(c, want)) << static_cast<int>(form);
  }
}

}  // namespace
}  // namespace lockstep::oracle
