// The vectors of arithmetic.md 4 for random bits, initial weights and the digest.
#include <gtest/gtest.h>

#include "oracle/arithmetic/functions.h"
#include "oracle/arithmetic/philox.h"
#include "oracle/model/digest.h"
#include "oracle/model/initialize.h"
#include "oracle/ops/dropout.h"

namespace lockstep::oracle {
namespace {

TEST(philox, has_the_bits_of_the_vectors) {
  EXPECT_EQ(philox(0u, 0u, {0, 0, 0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox(ones, ones, {ones, ones, ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(dropout, draws_the_word_of_the_vector) {
  const DropoutKey key{0.5, 1234567890123, 7};
  const PhiloxCounter block = dropout_block(key, {3, Site::mixer}, 5, 11, 42 >> 2);
  EXPECT_EQ(block, (PhiloxCounter{0x0f7d6169, 0x8e131f1b, 0xda14b502, 0x83e2a78d}));
  EXPECT_EQ(block[42 & 3], 0xda14b502u);
}

// A row's mask is a function of document, position, step and layer; the channels of a row take all
// four words.
TEST(dropout, keeps_and_scales_by_the_threshold) {
  PackedBatch pack;
  pack.rows = 4;
  pack.documents = pack.runs = {{1, 2, 9}};
  Matrix<float> x(4, 6);
  for (float& value : x.values) value = 3.0f;
  const DropoutKey key{0.25, 77, 2};
  const Matrix<float> y = dropped(pack, key, {1, Site::mixer}, x, Mutant());
  int kept = 0;
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t c = 0; c < 6; ++c) {
      const bool inside = i == 1 || i == 2;
      const std::uint32_t position = static_cast<std::uint32_t>(i - 1),
                          channel = static_cast<std::uint32_t>(c);
      const std::uint32_t word = philox(77, {channel / 4 | 4u << 20, position, 9, 2})[c % 4];
      const bool keep = inside && word >= 0x40000000u;
      EXPECT_EQ(bits(y.row(i)[c]), keep ? bits(mul(3.0f, div(1.0f, 0.75f))) : 0u);
      kept += keep ? 1 : 0;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 12);
}

TEST(initial_weights, have_the_bits_of_the_vector) {
  const ParameterLayout parameter{"w", -1, 1, 4, false, Start::normal};
  const std::vector<float> w = initial_weight(parameter, 2, 4, 1234, Mutant());
  EXPECT_EQ(bits(w[0]), 0xbc4833e5u);
  EXPECT_EQ(bits(w[1]), 0xbaf7f55bu);
  EXPECT_EQ(bits(w[2]), 0x3c4ee264u);
  EXPECT_EQ(bits(w[3]), 0xbcfe8d1cu);
}

TEST(initial_weights, lie_in_their_ranges) {
  const auto range = [](Start start, std::int64_t cols) {
    const std::vector<float> w =
        initial_weight({"w", -1, 50, cols, false, start}, 5, 4, 1, Mutant());
    return std::pair{*std::min_element(w.begin(), w.end()), *std::max_element(w.begin(), w.end())};
  };
  const auto [conv_low, conv_high] = range(Start::conv, 4);  // +-1/sqrt(4)
  EXPECT_GE(conv_low, -0.5f);
  EXPECT_LT(conv_low, -0.4f);
  EXPECT_LE(conv_high, 0.5f);
  EXPECT_GT(conv_high, 0.4f);
  const auto [dt_low, dt_high] =
      range(Start::dt_bias, 8);  // softplus of it lies between 0.001 and 0.1
  EXPECT_GE(softplus(dt_low), 0.00099f);
  EXPECT_LE(softplus(dt_high), 0.10001f);
  EXPECT_GT(dt_high, dt_low);
  const auto [a_low, a_high] = range(Start::a_log, 8);  // exp of it lies between 1 and 16
  EXPECT_GE(a_low, 0.0f);
  EXPECT_LE(a_high, 2.7726f);
  EXPECT_GT(a_high, 2.0f);
}

TEST(digest, has_the_bits_of_the_vector) {
  Digest digest;
  digest.take(0, 3, {1.0f, -1.0f, 0.0f});
  EXPECT_EQ(digest.high(), 0x9ea896d94fe157c9u);
  EXPECT_EQ(digest.low(), 0x462e42887ffc5f98u);
  EXPECT_EQ(digest.text(), "9ea896d94fe157c9462e42887ffc5f98");
}

}  // namespace
}  // namespace lockstep::oracle
