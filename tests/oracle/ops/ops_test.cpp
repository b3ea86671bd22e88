// The vectors of arithmetic.md 4 for ops, and the blocked products against the sums written out.
#include <gtest/gtest.h>

#include "oracle/arithmetic/dots.h"
#include "oracle/model/optimizer.h"
#include "oracle/ops/attention_views.h"
#include "oracle/ops/cross_entropy.h"
#include "oracle/ops/rms_norm.h"
#include "oracle/ops/rope.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;

TEST(rope, has_the_bits_of_the_vector) {
  const float c = div(mul(-2.0f, log(10000.0f)), 64.0f);
  EXPECT_EQ(bits(log(10000.0f)), 0x41135d8eu);
  EXPECT_EQ(bits(c), 0xbe935d8eu);
  EXPECT_EQ(bits(expn(mul(c, 0.0f))), 0x3f800000u);
  EXPECT_EQ(bits(expn(mul(c, 1.0f))), 0x3f3ff911u);
  EXPECT_EQ(bits(expn(mul(c, 31.0f))), 0x390bd46du);
  const RopeTable<float> table = make_rope_table<float>(1001, 64, 10000);
  EXPECT_EQ(bits(table.cosine.row(1000)[5]), 0xbd5894d6u);
  EXPECT_EQ(bits(table.sine.row(1000)[5]), 0xbf7fa451u);
}

TEST(attention_scale, has_the_bits_of_the_vector) {
  EXPECT_EQ(bits(attention_scale<float>({1, 1, 64}, kNone)), 0x3e000000u);
  EXPECT_EQ(bits(attention_scale<float>({1, 1, 80}, kNone)), 0x3de4f92eu);
  EXPECT_EQ(bits(attention_scale<float>({1, 1, 128}, kNone)), 0x3db504f3u);
}

TEST(rms_norm, has_the_bits_of_the_vector) {
  const float x[] = {1, -2, 3, 0.5, -0.25}, gain[] = {1, 1, 0.5, 2, -1};
  float y[5];
  EXPECT_EQ(bits(rms_norm_row<Fp32>(5, x, gain, 1e-5f, y, kNone)), 0x3f174f42u);
  const std::uint32_t want[] = {0x3f174f42, 0xbf974f42, 0x3f62f6e3, 0x3f174f42, 0x3e174f42};
  for (int k = 0; k < 5; ++k) EXPECT_EQ(bits(y[k]), want[k]);
}

TEST(cross_entropy, has_the_bits_of_the_vector) {
  const float logits[] = {1, 2, 3};
  float dlogit[3];
  EXPECT_EQ(bits(cross_entropy_row<Fp32>(logits, 3, 1, div(1.0f, 3.0f), dlogit, kNone)),
            0x3fb42c6eu);
  const std::uint32_t want[] = {0x3cf5d7ef, 0xbe80e652, 0x3e6311a4};
  const std::uint16_t narrow[] = {0x3cf6, 0xbe81, 0x3e63};
  for (int v = 0; v < 3; ++v) {
    EXPECT_EQ(bits(dlogit[v]), want[v]);
    EXPECT_EQ(to_bf16(dlogit[v]), narrow[v]);
  }
}

TEST(adam, has_the_bits_of_the_vector) {
  Scenario::Training::Optimizer optimizer;
  optimizer.lr = 1e-3;
  optimizer.weight_decay = 0.1;
  Parameter w{"w", -1, 1, 1, false, {0.5f}, {0.0f}, {0.0f}, {0.0f}};
  AdamW adam(optimizer);
  const std::uint32_t want[] = {0x3eff7660, 0x3efef245, 0x3efe6ff2};
  for (int t = 1; t <= 3; ++t) {
    w.gradient[0] = 0.25f * static_cast<float>(t);
    adam.advance(1);
    adam.update(w, 0.5f, 1e-3f, kNone);
    EXPECT_EQ(bits(w.weight[0]), want[t - 1]) << t;
  }
  EXPECT_EQ(bits(w.m[0]), 0x3d8f9db2u);
  EXPECT_EQ(bits(w.v[0]), 0x3c2f645au);
  EXPECT_EQ(bits(adam.first_correction()), 0x406c2991u);
  EXPECT_EQ(bits(adam.second_correction()), 0x40e05d56u);
}

TEST(learning_rate, follows_its_schedule) {
  Scenario::Training::Optimizer optimizer;
  optimizer.lr = 1e-3;
  optimizer.min_lr = 1e-4;
  optimizer.schedule = LrSchedule::cosine;
  optimizer.lr_warmup = 10;
  optimizer.decay_steps = 110;
  EXPECT_EQ(bits(learning_rate(optimizer, 40, kNone)), 0x3a558466u);
  EXPECT_EQ(bits(learning_rate(optimizer, 4, kNone)), bits(mul(1e-3f, div(4.0f, 10.0f))));
  EXPECT_EQ(bits(learning_rate(optimizer, 10, kNone)), bits(1e-3f));
  optimizer.schedule = LrSchedule::linear;
  EXPECT_EQ(bits(learning_rate(optimizer, 60, kNone)), bits(fma(sub(1e-4f, 1e-3f), 0.5f, 1e-3f)));
  EXPECT_EQ(bits(learning_rate(optimizer, 500, kNone)), bits(fma(sub(1e-4f, 1e-3f), 1.0f, 1e-3f)));
  optimizer.schedule = LrSchedule::constant;
  EXPECT_EQ(bits(learning_rate(optimizer, 60, kNone)), bits(1e-3f));
}

std::vector<float> numbers(std::int64_t n, std::uint32_t seed) {
  Draws from(seed);
  std::vector<float> values(n);
  for (float& value : values) value = static_cast<float>(from.next());
  return values;
}

// Every result of the blocked product is the one chain, whatever block it falls into.
TEST(dots, are_chains_at_every_shape) {
  for (const std::int64_t rows : {1, 3, 4, 9}) {
    for (const std::int64_t cols : {1, 5, 16, 23}) {
      for (const std::int64_t terms : {0, 1, 17}) {
        const std::vector<float> a = numbers(rows * terms, 1), b = numbers(terms * cols, 2);
        std::vector<float> c = numbers(rows * cols, 3), want = c;
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < cols; ++j) {
            float& sum = want[i * cols + j];
            for (std::int64_t k = 0; k < terms; ++k)
              sum = fma(a[i * terms + k], b[k * cols + j], sum);
            sum = add(sum, 0.0f);
          }
        }
        dots<Fp32>(rows, cols, terms, Left<float>{a.data(), terms, 1}, Right<float>{b.data(), cols},
                   c.data(), cols, Chain::last);
        EXPECT_TRUE(same_bits(c, want)) << rows << " " << cols << " " << terms;
      }
    }
  }
}

TEST(dots, of_triangles_are_chains_too) {
  for (const std::int64_t n : {1, 7, 8, 21}) {
    const std::int64_t cols = 18;
    std::vector<float> a = numbers(n * n, 1);
    const std::vector<float> b = numbers(n * cols, 2);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = i + 1; j < n; ++j)
        a[i * n + j] = from_bits(0x7fffffff);  // Must not be looked at.
    }
    std::vector<float> low = numbers(n * cols, 3), up = low, want_low = low, want_up = low;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t e = 0; e < cols; ++e) {
        for (std::int64_t j = 0; j <= i; ++j)
          want_low[i * cols + e] = fma(a[i * n + j], b[j * cols + e], want_low[i * cols + e]);
        for (std::int64_t j = i; j < n; ++j)
          want_up[i * cols + e] = fma(a[j * n + i], b[j * cols + e], want_up[i * cols + e]);
      }
    }
    lower_dots<Fp32>(n, cols, a.data(), n, Right<float>{b.data(), cols}, low.data(), cols,
                     Chain::last);
    upper_dots<Fp32>(n, cols, a.data(), n, Right<float>{b.data(), cols}, up.data(), cols,
                     Chain::last);
    EXPECT_TRUE(same_bits(low, want_low)) << n;
    EXPECT_TRUE(same_bits(up, want_up)) << n;
  }
}

}  // namespace
}  // namespace lockstep::oracle
