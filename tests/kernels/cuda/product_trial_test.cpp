// The random product that admits an algorithm: whatever another order of the sum is, enough of the
// compared elements see it, after the store to bf16 too; and every class of numbers is there.
#include "kernels/cuda/gemm/product_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/fda16.h"

namespace lockstep {
namespace {

constexpr int kEnough = 8;  // For 64 places.
constexpr TensorCore kInVec8{.fraction_bits = 25, .group = 8, .min_exponent = -133};

// The factors of one element.
struct Factors {
  Factors(trial::StepLocation at, std::int64_t depth) : a(static_cast<std::size_t>(depth)), b(a) {
    for (std::int64_t k = 0; k < depth; ++k) {
      a[static_cast<std::size_t>(k)] = load(trial::a(at.row, k, depth));
      b[static_cast<std::size_t>(k)] = load(trial::b(at.col, k, depth));
    }
  }
  float chain(const TensorCore& core, std::int64_t begin, std::int64_t end,
              float start = 0.0f) const {
    return fda_chain(core, begin, end, a.data(), 1, b.data(), 1, start);
  }
  // Groups of k16 in turns into `count` accumulators, which are added.
  float interleaved(std::int64_t count) const {
    const auto depth = static_cast<std::int64_t>(a.size());
    std::vector<float> parts(static_cast<std::size_t>(count), 0.0f);
    for (std::int64_t k = 0; k < depth; k += 16) {
      float& part = parts[static_cast<std::size_t>(k / 16 % count)];
      part = chain(kSm90, k, std::min(k + 16, depth), part);
    }
    float sum = 0;
    for (const float part : parts) sum = add(sum, part);
    return sum;
  }
  // Parts of a multiple of 16 places each, or of 8 if there is one group only.
  float split(std::int64_t count) const {
    const auto depth = static_cast<std::int64_t>(a.size());
    const std::int64_t step = depth <= 16 ? 8 : 16,
                       part = (depth / step + count - 1) / count * step;
    float sum = 0;
    for (std::int64_t k = 0; k < depth; k += part)
      sum = add(sum, chain(kSm90, k, std::min(k + part, depth)));
    return sum;
  }
  std::vector<float> a, b;
};

template <class Other>
int places_that_see(std::int64_t depth, bool fp32, const Other& other) {
  const Product product{.m = 512, .n = 512, .k = depth, .fp32 = fp32};
  int seen = 0;
  for (int i = 0; i < trial::kPlaces; ++i) {
    const Factors factors(trial::place(product, i), depth);
    const float want = factors.chain(kSm90, 0, depth), got = other(factors);
    const float stored_want = fp32 ? want : load(st<bf16>(want)),
                stored_got = fp32 ? got : load(st<bf16>(got));
    seen += bits(stored_want) != bits(stored_got);
  }
  return seen;
}

TEST(ProductTrial, ShowsEveryOtherOrderOfTheSum) {
  for (std::int64_t depth = 16; depth <= 512; depth += 8) {
    for (const bool fp32 : {false, true}) {
      EXPECT_GE(places_that_see(depth, fp32, [](const Factors& f) { return f.split(2); }), kEnough)
          << "halves, " << depth;
      EXPECT_GE(places_that_see(depth, fp32,
                                [&](const Factors& f) { return f.chain(kInVec8, 0, depth); }),
                kEnough)
          << "eights, " << depth;
      if (depth <= 16) continue;  // One group is one chain.
      EXPECT_GE(places_that_see(depth, fp32, [](const Factors& f) { return f.interleaved(2); }),
                kEnough)
          << "interleaved, " << depth;
      EXPECT_GE(places_that_see(depth, fp32, [](const Factors& f) { return f.split(4); }), kEnough)
          << "quarters, " << depth;
    }
  }
}
TEST(ProductTrial, ShowsThemInLongSumsToo) {
  for (const std::int64_t depth : {1000, 2048, 8192}) {
    EXPECT_GE(places_that_see(depth, false, [](const Factors& f) { return f.split(2); }), kEnough)
        << depth;
    EXPECT_GE(places_that_see(depth, false, [](const Factors& f) { return f.split(7); }), kEnough)
        << depth;
    EXPECT_GE(places_that_see(depth, false, [](const Factors& f) { return f.interleaved(2); }),
              kEnough)
        << depth;
    EXPECT_GE(
        places_that_see(depth, false, [&](const Factors& f) { return f.chain(kInVec8, 0, depth); }),
        kEnough);
  }
}

// Subnormal sums, numbers, infinities; accumulators that are subnormal or -0 where the sum is
// subnormal.
TEST(ProductTrial, HasEveryClassOfNumbers) {
  for (const std::int64_t depth : {16, 64, 512, 8192}) {
    const Product product{.m = 64, .n = 48, .k = depth};
    int subnormal = 0, normal = 0, infinite = 0, negative_zero = 0, small_before = 0;
    for (int i = 0; i < trial::kPlaces; ++i) {
      const trial::StepLocation at = trial::place(product, i);
      ASSERT_TRUE(at.row >= 0 && at.row < product.m && at.col >= 0 && at.col < product.n);
      const float sum = Factors(at, depth).chain(kSm90, 0, depth),
                  before = trial::c(at.row, at.col);
      const int kind = std::fpclassify(sum);
      subnormal += kind == FP_SUBNORMAL, normal += kind == FP_NORMAL,
          infinite += kind == FP_INFINITE;
      negative_zero += bits(before) == 0x80000000u,
          small_before += std::fpclassify(before) == FP_SUBNORMAL;
    }
    EXPECT_GE(subnormal, 3) << depth;
    EXPECT_GE(normal, 6) << depth;
    EXPECT_GE(infinite, 2) << depth;
    EXPECT_GE(negative_zero, 1) << depth;
    EXPECT_GE(small_before, 3) << depth;
  }
}

// Any depth has factors, those of a last group with no room for a pair included.
TEST(ProductTrial, HasFactorsForEveryDepth) {
  for (std::int64_t depth = 1; depth <= 70; ++depth) {
    for (std::int64_t row = 0; row < 40; ++row) {
      const Factors factors({row, row}, depth);
      float up = 0;
      for (const float x : factors.b) up += x == 0x1p20f || x == 0x1p-48f || x == 0x1p84f;
      EXPECT_EQ(up, depth < 2 || !trial::has_pair(row) ? 0 : 1) << depth << ", " << row;
    }
  }
}

}  // namespace
}  // namespace lockstep
