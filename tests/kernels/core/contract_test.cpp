// The vectors of arithmetic.md, section 4. Bits in, bits out.
#include "kernels/core/contract.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/core/reduce.h"
#include "kernels/diagnostics/digest.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/dropout.h"
#include "kernels/ops/initialize.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"

namespace lockstep {
namespace {

using F = float;

testing::AssertionResult has_bits(float x, std::uint32_t want) {
  if (bits(x) == want) return testing::AssertionSuccess();
  return testing::AssertionFailure() << std::hex << bits(x) << " instead of " << want;
}
template <class Function>
testing::AssertionResult maps(Function function, std::uint32_t x, std::uint32_t want) {
  return has_bits(function(from_bits(x)), want) << ", input " << std::hex << x;
}
#define EXPECT_MAPS(function, x, want) \
  EXPECT_TRUE(maps([](float a) { return function(a); }, x, want)) << #function

float inverse_of(std::int64_t e) { return div(1.0f, static_cast<float>(e + 1)); }

TEST(Contract, Exponentials) {
  EXPECT_MAPS(exp, 0x3f800000, 0x402df854);
  EXPECT_MAPS(exp, 0xc1a40000, 0x30abd1d8);
  EXPECT_MAPS(exp, 0xc2c80000, 0x0000001b);
  EXPECT_MAPS(exp, 0x42b10000, 0x7f4cdcc3);
  EXPECT_MAPS(exp, 0x42b20000, 0x7f800000);
  EXPECT_MAPS(expn, 0xbf000000, 0x3f1b4598);
  EXPECT_MAPS(expn, 0xc2ae0000, 0x00b33687);
  EXPECT_MAPS(expn, 0xc2ae051f, 0x00000000);
  EXPECT_MAPS(expn, 0xff800000, 0x00000000);
  for (const std::uint32_t nan : {0x7fc00000u, 0xffc00001u, 0x7f800001u}) {
    EXPECT_MAPS(exp, nan, 0x7fffffff);
    EXPECT_MAPS(expn, nan, 0x7fffffff);
    EXPECT_MAPS(log, nan, 0x7fffffff);
  }
}
TEST(Contract, Logarithms) {
  EXPECT_MAPS(log, 0x40400000, 0x3f8c9f54);
  EXPECT_MAPS(log, 0x00000001, 0xc2ce8ed0);
  EXPECT_MAPS(log, 0x00000000, 0xff800000);
  EXPECT_MAPS(log, 0x80000000, 0xff800000);
  EXPECT_MAPS(log, 0x7f800000, 0x7f800000);
  EXPECT_MAPS(log, 0xbf800000, 0x7fffffff);
  EXPECT_MAPS(softplus, 0xc0000000, 0x3e01f96a);
  EXPECT_MAPS(softplus, 0x00000000, 0x3f317218);
  EXPECT_MAPS(softplus, 0x41a00000, 0x41a00000);
}
TEST(Contract, Sigmoids) {
  EXPECT_MAPS(sigmoid, 0xc0400000, 0x3d4241a2);
  EXPECT_MAPS(silu, 0x3fc00000, 0x3f9cf96b);
  EXPECT_MAPS(silu, 0x80000000, 0x80000000);
  EXPECT_MAPS(dsilu, 0x3fc00000, 0x3f854921);
  EXPECT_MAPS(dsilu, 0xc0800000, 0xbd57b6d9);
}
TEST(Contract, Angles) {
  EXPECT_MAPS(sin, 0x42c80000, 0xbf01a12e);
  EXPECT_MAPS(sin, 0x45fff800, 0xbf435469);
  EXPECT_MAPS(cos, 0x42c80000, 0x3f5cc0ee);
}
TEST(Contract, Roots) {
  EXPECT_MAPS(rsqrt, 0x40400000, 0x3f13cd3a);
  EXPECT_MAPS(sqrt, 0x00000003, 0x1a9cc471);
}
TEST(Contract, ScaleOfAttention) {
  const auto scale = [](float hd) { return div(1.0f, sqrt(hd)); };
  EXPECT_TRUE(has_bits(scale(64), 0x3e000000));
  EXPECT_TRUE(has_bits(scale(80), 0x3de4f92e));
  EXPECT_TRUE(has_bits(scale(128), 0x3db504f3));
}
TEST(Contract, ChainsNeverEndInMinusZero) {
  const float c = fma(from_bits(0x8da24260), from_bits(0x0da24260), 0.0f);
  EXPECT_TRUE(has_bits(c, 0x80000000));
  EXPECT_TRUE(has_bits(add(c, 0.0f), 0x00000000));
}
TEST(Contract, Bf16Store) {
  const std::uint32_t vectors[][2] = {
      {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
      {0x3eaaaaab, 0x3eab}, {0x7f7fffff, 0x7f80}, {0x00008000, 0x0000},
      {0x00018000, 0x0002}, {0x80000001, 0x8000}, {0xff800001, 0x7fff}};
  for (const auto& v : vectors) EXPECT_EQ(st<bf16>(from_bits(v[0])).bits, v[1]) << std::hex << v[0];
  for (std::uint32_t b = 0; b < 0x7f80; ++b) {
    ASSERT_EQ(st<bf16>(load(bf16{static_cast<std::uint16_t>(b)})).bits, b)
        << "a stored value is widened exactly";
  }
}
TEST(Contract, Reductions) {
  EXPECT_TRUE(has_bits(r128(300, [](auto e, float c) { return add(c, static_cast<float>(e + 1)); }),
                       0x47305e00));
  EXPECT_TRUE(
      has_bits(r128(300, [](auto e, float c) { return add(c, inverse_of(e)); }), 0x40c90b94));
  const auto seventh = [](auto e, float c) {
    const float x = div(static_cast<float>(e + 1), 7.0f);
    return fma(x, x, c);
  };
  EXPECT_TRUE(has_bits(r128(300, seventh), 0x48344437));
  EXPECT_TRUE(
      has_bits(r1024(3000, [](auto e, float c) { return add(c, inverse_of(e)); }), 0x4109570a));
  float sum = -1;
  column_sums(300, 1, &sum, [](std::int64_t i, float* p) { *p = add(*p, inverse_of(i)); });
  EXPECT_TRUE(has_bits(sum, 0x40c90b94));
  column_sums(
      300, 1, &sum, [](std::int64_t i, float* p) { *p = add(*p, inverse_of(i)); }, 300);
  EXPECT_TRUE(has_bits(sum, 0x40c90b98)) << "one block is the sequential sum";
}
// The shortcut for short sums against the tree as it is written.
TEST(Contract, ShortR128IsTheWholeTree) {
  for (std::int64_t n = 0; n <= 300; ++n) {
    float acc[128] = {}, t[32];
    for (std::int64_t e = 0; e < n; ++e) acc[e % 128] = add(acc[e % 128], inverse_of(3 * e % 101));
    for (int l = 0; l < 32; ++l)
      t[l] = add(add(acc[4 * l], acc[4 * l + 1]), add(acc[4 * l + 2], acc[4 * l + 3]));
    for (int off = 16; off > 0; off /= 2) {
      for (int l = 0; l < off; ++l) t[l] = add(t[l], t[l + off]);
    }
    const float got = r128(n, [](auto e, float c) { return add(c, inverse_of(3 * e % 101)); });
    ASSERT_TRUE(has_bits(got, bits(add(t[0], 0.0f)))) << n;
  }
}
TEST(Contract, Philox) {
  const Philox zero = philox(0, 0, 0, 0, 0, 0), ones = philox(~0u, ~0u, ~0u, ~0u, ~0u, ~0u);
  const std::uint32_t want[2][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                    {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}};
  for (int w = 0; w < 4; ++w) {
    EXPECT_EQ(zero.word[w], want[0][w]);
    EXPECT_EQ(ones.word[w], want[1][w]);
  }
}
TEST(Contract, DropoutWord) {
  const std::uint64_t seed = 1234567890123;
  const auto low = static_cast<std::uint32_t>(seed), high = static_cast<std::uint32_t>(seed >> 32);
  const Philox r = philox(low, high, (42u >> 2) | ((3u * 4 + 0) << 20), 11, 5, 7);
  EXPECT_EQ(r.word[0], 0x0f7d6169u);
  EXPECT_EQ(r.word[1], 0x8e131f1bu);
  EXPECT_EQ(r.word[2], 0xda14b502u);
  EXPECT_EQ(r.word[3], 0x83e2a78du);
  Dropout d{.active = true, .site = 12, .threshold = 0xda14b502, .scale = 2};
  const StepState s{.seed_low = low, .seed_high = high, .step = 7};
  EXPECT_TRUE(has_bits(drop(d, s, 5, 11, 42, 3.0f), bits(6.0f)))
      << "kept: the word reaches the threshold";
  d.threshold += 1;
  EXPECT_TRUE(has_bits(drop(d, s, 5, 11, 42, -3.0f), 0)) << "dropped: +0";
}
TEST(Contract, InitialNormal) {
  std::vector<float> w(4);
  run(HostQueue{}, Initialize{.w = tensor(w.data(), 2, 2),
                              .kind = Init::normal,
                              .std = 0.02f,
                              .parameter = 2,
                              .seed_low = 1234});
  const std::uint32_t want[] = {0xbc4833e5, 0xbaf7f55b, 0x3c4ee264, 0xbcfe8d1c};
  for (std::size_t e = 0; e < 4; ++e) EXPECT_TRUE(has_bits(w[e], want[e])) << e;
}
TEST(Contract, Digest) {
  std::vector<float> values = {1.0f, -1.0f, 0.0f};
  std::vector<std::uint64_t> sums(2);
  run(HostQueue{},
      Digest{
          .values = tensor(values.data(), 1, 3), .sums = tensor(sums.data(), 1, 2), .tensor = 3});
  EXPECT_EQ(sums[0], 0x462e42887ffc5f98u);
  EXPECT_EQ(sums[1], 0x9ea896d94fe157c9u);
}
TEST(Contract, RopeTable) {
  EXPECT_TRUE(has_bits(log(1e4f), 0x41135d8e));
  const float c = div(mul(-2.0f, log(1e4f)), 64.0f);
  EXPECT_TRUE(has_bits(c, 0xbe935d8e));
  EXPECT_TRUE(has_bits(expn(mul(c, 0.0f)), 0x3f800000));
  EXPECT_TRUE(has_bits(expn(mul(c, 1.0f)), 0x3f3ff911));
  EXPECT_TRUE(has_bits(expn(mul(c, 31.0f)), 0x390bd46d));
  std::vector<float> table(1001 * 64);
  run(HostQueue{}, RopeTable{.table = tensor(table.data(), 1001, 64), .base = 1e4f});
  EXPECT_TRUE(has_bits(table[1000 * 64 + 5], 0xbd5894d6));
  EXPECT_TRUE(has_bits(table[1000 * 64 + 32 + 5], 0xbf7fa451));
}
TEST(Contract, AdamW) {
  std::vector<float> w = {0.5f}, m = {0.0f}, v = {0.0f}, g = {0.0f}, norm = {1.0f, 0.5f};
  StepState state{.learning_rate = 1e-3f};
  double power1 = 1, power2 = 1;
  const std::uint32_t want[] = {0x3eff7660, 0x3efef245, 0x3efe6ff2};
  for (int t = 1; t <= 3; ++t) {
    power1 *= 0.9, power2 *= 0.95;
    g[0] = 0.25f * static_cast<float>(t);
    state.bias_correction1 = static_cast<float>(1.0 / (1.0 - power1));
    state.bias_correction2 = static_cast<float>(1.0 / (1.0 - power2));
    run(HostQueue{}, AdamW{.g = tensor(g.data(), 1, 1),
                           .norm = tensor(norm.data(), 1, 2),
                           .state = tensor(&state, 1, 1),
                           .w = tensor(w.data(), 1, 1),
                           .m = tensor(m.data(), 1, 1),
                           .v = tensor(v.data(), 1, 1),
                           .beta1 = static_cast<float>(0.9),
                           .one_minus_beta1 = static_cast<float>(1.0 - 0.9),
                           .beta2 = static_cast<float>(0.95),
                           .one_minus_beta2 = static_cast<float>(1.0 - 0.95),
                           .eps = 1e-8f,
                           .weight_decay = 0.1f});
    EXPECT_TRUE(has_bits(w[0], want[t - 1])) << t;
  }
  EXPECT_TRUE(has_bits(m[0], 0x3d8f9db2));
  EXPECT_TRUE(has_bits(v[0], 0x3c2f645a));
  EXPECT_TRUE(has_bits(state.bias_correction1, 0x406c2991));
  EXPECT_TRUE(has_bits(state.bias_correction2, 0x40e05d56));
}
TEST(Contract, CosineOfTheLearningRate) {
  const float peak = 1e-3f, low = 1e-4f, x = div(30.0f, 100.0f);
  const float lr = fma(mul(sub(peak, low), 0.5f), add(1.0f, cos(mul(x, 0x1.921fb6p+1f))), low);
  EXPECT_TRUE(has_bits(lr, 0x3a558466));
}
TEST(Contract, RmsNorm) {
  std::vector<float> x = {1, -2, 3, 0.5f, -0.25f}, gain = {1, 1, 0.5f, 2, -1}, y(5), rstd(1);
  std::vector<std::int32_t> document = {0};
  run(HostQueue{}, RmsNormForward<F>{.x = tensor(x.data(), 1, 5),
                                     .gain = tensor(gain.data(), 1, 5),
                                     .row_document = tensor(document.data(), 1, 1),
                                     .y = tensor(y.data(), 1, 5),
                                     .rstd = tensor(rstd.data(), 1, 1),
                                     .eps = 1e-5f});
  EXPECT_TRUE(has_bits(rstd[0], 0x3f174f42));
  const std::uint32_t want[] = {0x3f174f42, 0xbf974f42, 0x3f62f6e3, 0x3f174f42, 0x3e174f42};
  for (std::size_t e = 0; e < 5; ++e) EXPECT_TRUE(has_bits(y[e], want[e])) << e;
}
TEST(Contract, CrossEntropy) {
  std::vector<float> x = {1, 2, 3}, loss(1), maximum(1), sum(1), dx(3);
  std::vector<std::int32_t> target = {1};
  StepState state{.inverse_targets = div(1.0f, 3.0f)};
  run(HostQueue{}, CrossEntropyForward<F>{.logits = tensor(x.data(), 1, 3),
                                          .targets = tensor(target.data(), 1, 1),
                                          .loss = tensor(loss.data(), 1, 1),
                                          .maximum = tensor(maximum.data(), 1, 1),
                                          .sum = tensor(sum.data(), 1, 1)});
  run(HostQueue{}, CrossEntropyBackward<F>{.logits = tensor(x.data(), 1, 3),
                                           .targets = tensor(target.data(), 1, 1),
                                           .maximum = tensor(maximum.data(), 1, 1),
                                           .sum = tensor(sum.data(), 1, 1),
                                           .state = tensor(&state, 1, 1),
                                           .dlogits = tensor(dx.data(), 1, 3)});
  EXPECT_TRUE(has_bits(loss[0], 0x3fb42c6e));
  const std::uint32_t want[] = {0x3cf5d7ef, 0xbe80e652, 0x3e6311a4};
  const std::uint16_t want_bf16[] = {0x3cf6, 0xbe81, 0x3e63};
  for (std::size_t e = 0; e < 3; ++e) {
    EXPECT_TRUE(has_bits(dx[e], want[e])) << e;
    EXPECT_EQ(st<bf16>(dx[e]).bits, want_bf16[e]) << e;
  }
}
TEST(Contract, CrossEntropyInBf16) {
  std::vector<bf16> x, dx(3);
  for (const float v : {1.0f, 2.0f, 3.0f}) x.push_back(st<bf16>(v));
  std::vector<float> loss(1), maximum(1), sum(1);
  std::vector<std::int32_t> target = {1};
  StepState state{.inverse_targets = div(1.0f, 3.0f)};
  run(HostQueue{}, CrossEntropyForward<bf16>{.logits = tensor(x.data(), 1, 3),
                                             .targets = tensor(target.data(), 1, 1),
                                             .loss = tensor(loss.data(), 1, 1),
                                             .maximum = tensor(maximum.data(), 1, 1),
                                             .sum = tensor(sum.data(), 1, 1)});
  run(HostQueue{}, CrossEntropyBackward<bf16>{.logits = tensor(x.data(), 1, 3),
                                              .targets = tensor(target.data(), 1, 1),
                                              .maximum = tensor(maximum.data(), 1, 1),
                                              .sum = tensor(sum.data(), 1, 1),
                                              .state = tensor(&state, 1, 1),
                                              .dlogits = tensor(dx.data(), 1, 3)});
  EXPECT_TRUE(has_bits(loss[0], 0x3fb42c6e));
  const std::uint16_t want[] = {0x3cf6, 0xbe81, 0x3e63};
  for (std::size_t e = 0; e < 3; ++e) EXPECT_EQ(dx[e].bits, want[e]) << e;
}

// Against the C library in double. Each function is a handful of roundings of a fitted polynomial:
// 4 units in the last place of the result, and for sine and cosine near a zero the same measured
// at 1.
TEST(Contract, FunctionsAreNearTheRealOnes) {
  const auto near = [](float got, double want, double unit) {
    return std::abs(got - want) <= 4 * 0x1p-23 * unit;
  };
  for (int k = 0; k <= 20000; ++k) {
    const float x = static_cast<float>(k) * 0.008f - 80.0f;
    ASSERT_TRUE(near(exp(x), std::exp(double{x}), std::exp(double{x}))) << x;
    ASSERT_TRUE(x > 0 || near(expn(x), std::exp(double{x}), std::exp(double{x}))) << x;
    const double exact = std::exp(double{x} / 4),
                 logarithm = std::log(double{static_cast<float>(exact)});
    ASSERT_TRUE(near(log(static_cast<float>(exact)), logarithm, std::abs(logarithm))) << x;
    ASSERT_TRUE(near(softplus(x), std::log1p(std::exp(double{x})), std::log1p(std::exp(double{x}))))
        << x;
    ASSERT_TRUE(near(sigmoid(x), 1 / (1 + std::exp(-double{x})), 1 / (1 + std::exp(-double{x}))))
        << x;
    ASSERT_TRUE(near(sin(40 * x), std::sin(double{40 * x}), 1)) << x;
    ASSERT_TRUE(near(cos(40 * x), std::cos(double{40 * x}), 1)) << x;
  }
}

}  // namespace
}  // namespace lockstep
