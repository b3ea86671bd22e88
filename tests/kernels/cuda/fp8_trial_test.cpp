// The random product of codes that admits an algorithm: whatever another order of the sum is,
// enough of the compared elements see it, after the store to bf16 too.
#include "kernels/cuda/gemm/fp8_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

// How many of 64 places must differ. A second run of few places changes little: a product shows it
// in other elements.
int enough(std::int64_t depth) { return depth >= kFp8Run && depth < 2 * kFp8Run ? 1 : 8; }

template <class A>
struct Element {
  Element(trial::StepLocation at, std::int64_t depth) : a(static_cast<std::size_t>(depth)) {
    for (std::int64_t k = 0; k < depth; ++k) {
      a[static_cast<std::size_t>(k)] = trial::a_code<A>(at.row, k, depth);
      b.push_back(trial::b_code(at.col, k, depth));
    }
  }
  std::int64_t depth() const { return static_cast<std::int64_t>(b.size()); }
  float model() const { return dot8(depth(), a.data(), 1, b.data(), 1); }
  // A chain of groups of `group` products, over [begin, end).
  float chain(std::int64_t begin, std::int64_t end, std::int64_t group, float start = 0.0f) const {
    for (std::int64_t k = begin; k < end; k += group) {
      start = fda32(static_cast<int>(std::min(group, end - k)), a.data() + k, 1, b.data() + k, 1,
                    start);
    }
    return start;
  }
  // Chains of `run` products each, which are added in fp32.
  float runs(std::int64_t run, std::int64_t group = kFp8Group) const {
    float sum = 0;
    for (std::int64_t k = 0; k < depth(); k += run)
      sum = add(sum, chain(k, std::min(k + run, depth()), group));
    return sum;
  }
  // The model's runs in turns into `count` accumulators, which are added.
  float interleaved(std::int64_t count) const {
    std::vector<float> parts(static_cast<std::size_t>(count), 0.0f);
    for (std::int64_t k = 0; k < depth(); k += kFp8Run) {
      float& part = parts[static_cast<std::size_t>(k / kFp8Run % count)];
      part = add(part, chain(k, std::min(k + kFp8Run, depth()), kFp8Group));
    }
    float sum = 0;
    for (const float part : parts) sum = add(sum, part);
    return sum;
  }
  // The model's sums of `count` parts of the runs, which are added.
  float split(std::int64_t count) const {
    const std::int64_t all = (depth() + kFp8Run - 1) / kFp8Run;
    const std::int64_t part = (all + count - 1) / count * kFp8Run;
    float sum = 0;
    for (std::int64_t k = 0; k < depth(); k += part)
      sum = add(sum, dot8(std::min(part, depth() - k), a.data() + k, 1, b.data() + k, 1));
    return sum;
  }

  std::vector<A> a;
  std::vector<e4m3> b;
};

template <class A, class Other>
int places_that_see(std::int64_t depth, bool fp32, const Other& other) {
  const Product product{.factors = std::is_same_v<A, e4m3> ? Factors::e4m3 : Factors::e5m2_e4m3,
                        .m = 512,
                        .n = 512,
                        .k = depth,
                        .fp32 = fp32};
  int seen = 0;
  for (int i = 0; i < trial::kPlaces; ++i) {
    const Element<A> one(trial::place(product, i), depth);
    const float want = one.model(), got = other(one);
    if (want != want) continue;
    seen += fp32 ? bits(want) != bits(got) : st<bf16>(want).bits != st<bf16>(got).bits;
  }
  return seen;
}

template <class A>
void expect_every_order_to_show() {
  for (const std::int64_t depth : {48, 128, 144, 256, 384, 400, 512, 1000 / 16 * 16, 2048, 8192}) {
    for (const bool fp32 : {false, true}) {
      const auto expect_seen = [&](const char* what, const auto& other) {
        EXPECT_GE(places_that_see<A>(depth, fp32, other), enough(depth))
            << what << ", " << depth << (fp32 ? ", fp32" : ", bf16");
      };
      expect_seen("groups of 16", [](const Element<A>& e) { return e.runs(kFp8Run, 16); });
      if (depth <= kFp8Run) continue;  // One run is one chain.
      expect_seen("one chain", [](const Element<A>& e) { return e.runs(e.depth()); });
      expect_seen("runs of 64", [](const Element<A>& e) { return e.runs(64); });
      expect_seen("runs of 256", [](const Element<A>& e) { return e.runs(256); });
      if (depth <= 2 * kFp8Run) continue;  // Two sums have one order.
      expect_seen("interleaved", [](const Element<A>& e) { return e.interleaved(2); });
      if (depth <= 3 * kFp8Run) continue;
      expect_seen("two parts", [](const Element<A>& e) { return e.split(2); });
      if (depth >= 1024) expect_seen("four parts", [](const Element<A>& e) { return e.split(4); });
    }
  }
}
TEST(Fp8Trial, ShowsEveryOtherOrderOfTheSum) {
  expect_every_order_to_show<e4m3>();
  expect_every_order_to_show<e5m2>();
}

// Results are normal numbers by both pairs of scales, and one row in 64 is NaN.
TEST(Fp8Trial, HasNumbersAndNaN) {
  const Product product{.factors = Factors::e5m2_e4m3, .m = 128, .n = 64, .k = 512};
  for (int which = 0; which < trial::kFp8Trials; ++which) {
    const trial::Scales scales = trial::scales(product, which);
    for (int i = 0; i < trial::kPlaces; ++i) {
      const trial::StepLocation at = trial::place(product, i);
      const float sum = mul(Element<e5m2>(at, product.k).model(), mul(scales.a, scales.b));
      EXPECT_EQ(sum != sum, at.row % 64 == 37);
      if (sum == sum && sum != 0) {
        EXPECT_TRUE(abs(sum) >= 0x1p-120f && abs(sum) < 0x1p126f) << sum;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
