// Every form of DOT8 against the scalar model on codes that provoke it, and against sums whose
// order is another.
#include "kernels/host/fp8/dot8.h"

#include <gtest/gtest.h>

#include "kernels/core/at.h"
#include "kernels/core/fp8_families.h"

namespace lockstep {
namespace {

template <class A, class B>
struct Factors {
  std::int64_t m, n, k;
  std::vector<A> a;  // [m, k]
  std::vector<B> b;  // [n, k]
};
template <class A, class B>
Factors<A, B> factors(const Fp8Family& f, std::uint64_t seed) {
  Drawn draw(seed * 1000003 + static_cast<std::uint64_t>(&f - kFp8Families));
  const std::int64_t m = 1 + draw.below(9), n = 1 + draw.below(35), k = 1 + draw.below(420);
  Factors<A, B> made{m, n, k, std::vector<A>(static_cast<std::size_t>(m * k)),
                     std::vector<B>(static_cast<std::size_t>(n * k))};
  for (std::int64_t i = 0; i < m; ++i)
    draw_code_row(draw, f, seed, i, k, false, made.a.data() + i * k);
  for (std::int64_t j = 0; j < n; ++j)
    draw_code_row(draw, f, seed + 1, j, k, true, made.b.data() + j * k);
  return made;
}
template <class A, class B>
std::vector<float> product_by(Dot8Kernel kernel, const Factors<A, B>& x) {
  std::vector<float> c(static_cast<std::size_t>(x.m * x.n));
  const Fp8View<A> a{x.a.data(), x.k};
  const Fp8View<B> b{x.b.data(), x.k};
  dot8_product(kernel, x.m, x.n, x.k, a, b,
               [&](std::int64_t top, std::int64_t rows, std::int64_t first, std::int64_t columns,
                   const float* tile) {
                 for (std::int64_t i = 0; i < rows; ++i) {
                   for (std::int64_t j = 0; j < columns; ++j)
                     at(c, (top + i) * x.n + first + j) = tile[i * kDot8Lanes + j];
                 }
               });
  return c;
}
template <class A, class B>
void expect_the_scalar_model(const Dot8Form& form, int rounds) {
  for (int seed = 0; seed < rounds; ++seed) {
    for (const Fp8Family& f : kFp8Families) {
      const Factors<A, B> x = factors<A, B>(f, static_cast<std::uint64_t>(seed));
      const std::vector<float> got = product_by(form.kernel, x);
      for (std::int64_t i = 0; i < x.m; ++i) {
        for (std::int64_t j = 0; j < x.n; ++j) {
          const float want = dot8(x.k, x.a.data() + i * x.k, 1, x.b.data() + j * x.k, 1);
          ASSERT_EQ(bits(at(got, i * x.n + j)), bits(want))
              << form.name << ", " << f.name << ", seed " << seed << ", " << i << ", " << j;
        }
      }
    }
  }
}

class EveryDot8Form : public testing::TestWithParam<Dot8Form> {};

TEST_P(EveryDot8Form, EqualsTheScalarModel) {
  const int rounds = GetParam().kernel == dot8_scalar ? 2 : 20;
  expect_the_scalar_model<e4m3, e4m3>(GetParam(), rounds);
  expect_the_scalar_model<e5m2, e4m3>(GetParam(), rounds);
  expect_the_scalar_model<e4m3, e5m2>(GetParam(), rounds);
  expect_the_scalar_model<e5m2, e5m2>(GetParam(), rounds);
}
TEST_P(EveryDot8Form, HasTheVectorsOfTheContract) {
  Factors<e4m3, e4m3> ab{1, 1, 288, std::vector<e4m3>(288), std::vector<e4m3>(288)};
  Factors<e5m2, e4m3> eb{1, 1, 288, std::vector<e5m2>(288), std::vector<e4m3>(288)};
  for (int k = 0; k < 288; ++k) {
    at(ab.a, k).bits = static_cast<std::uint8_t>((37 * k + 11) % 127 + 128 * (5 * k % 3 == 0));
    at(ab.b, k).bits = static_cast<std::uint8_t>((53 * k + 29) % 127 + 128 * (7 * k % 4 == 1));
    at(eb.a, k).bits = static_cast<std::uint8_t>((71 * k + 3) % 124 + 128 * (k % 5 == 2));
  }
  eb.b = ab.b;
  EXPECT_EQ(bits(product_by(GetParam().kernel, ab)[0]), 0xc5c79000u);
  EXPECT_EQ(bits(product_by(GetParam().kernel, eb)[0]), 0x4ae66c00u);
}
// The forms change how the processor rounds; whoever calls them must not notice.
TEST_P(EveryDot8Form, LeavesTheRoundingAsItWas) {
  product_by(GetParam().kernel, factors<e4m3, e4m3>(kFp8Families[0], 1));
  volatile float one = 1.0f, little = 0x1.8p-24f;
  EXPECT_EQ(add(one, little), 0x1.000002p+0f);
}
INSTANTIATE_TEST_SUITE_P(Forms, EveryDot8Form, testing::ValuesIn(dot8_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

// How many of the results of a family differ from DOT8 when a run ends after `run` places, the sums
// of two runs meet in the other order, or the runs behind the first are summed by themselves.
struct OtherOrders {
  int dots = 0, longer_runs = 0, one_chain = 0, reversed = 0, split = 0;
};
OtherOrders other_orders(const Fp8Family& f) {
  OtherOrders seen;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Factors<e5m2, e4m3> x = factors<e5m2, e4m3>(f, seed);
    if (x.k <= 2 * kFp8Run) continue;
    for (std::int64_t i = 0; i < x.m; ++i) {
      const e5m2* a = x.a.data() + i * x.k;
      const e4m3* b = x.b.data();
      const std::uint32_t want = bits(dot8(x.k, a, 1, b, 1));
      const auto sum = [&](std::int64_t run, bool backwards) {
        float total = 0.0f;
        const std::int64_t runs = (x.k + run - 1) / run;
        for (std::int64_t n = 0; n < runs; ++n) {
          const std::int64_t r = (backwards ? runs - 1 - n : n) * run;
          total = add(total, fp8_run(std::min(run, x.k - r), a + r, 1, b + r, 1));
        }
        return bits(total);
      };
      const std::int64_t rest = x.k - kFp8Run;
      const float split =
          add(fp8_run(kFp8Run, a, 1, b, 1), dot8(rest, a + kFp8Run, 1, b + kFp8Run, 1));
      ++seen.dots;
      seen.split += bits(split) != want ? 1 : 0;
      seen.longer_runs += sum(2 * kFp8Run, false) != want ? 1 : 0;
      seen.one_chain += sum(x.k, false) != want ? 1 : 0;
      seen.reversed += sum(kFp8Run, true) != want ? 1 : 0;
    }
  }
  return seen;
}
// What the families are for: another order shows in many of their results.
TEST(Fp8Families, ShowAnotherOrderOfTheSums) {
  for (const Fp8Family& f : kFp8Families) {
    if (f.spread == 0 || f.specials != 0 || f.zeros == 3) continue;
    const OtherOrders seen = other_orders(f);
    ASSERT_GT(seen.dots, 20) << f.name;
    EXPECT_GT(4 * seen.longer_runs, seen.dots) << f.name;
    EXPECT_GT(4 * seen.one_chain, seen.dots) << f.name;
    EXPECT_GT(40 * seen.reversed, seen.dots) << f.name;
    EXPECT_GT(40 * seen.split, seen.dots) << f.name;
  }
}

}  // namespace
}  // namespace lockstep
