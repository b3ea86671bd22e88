// Passes in double whose stored values move by one unit in the last place.
#include "oracle/arithmetic/nudged.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

using Values = std::vector<double>;

Scenario hybrid() {
  Scenario scenario;
  scenario.model.pattern = "M*-";
  scenario.model.hidden = 12;
  scenario.model.vocab = 11;
  scenario.model.attention = {4, 2, 6, 100.0};
  scenario.model.mamba = {24, 6, 2, 5, 3, 4};
  scenario.model.mlp.hidden = 14;
  scenario.data.pack_length = 44;
  return scenario;
}

DoubleResult pass(std::uint64_t nudge, Numerics numerics = Numerics::fp32,
                  std::uint64_t number = 0) {
  const Scenario scenario = hybrid();
  return run_in_double(scenario, documents_of({3, 0, 4, 1, 5, 11}, scenario.model.vocab, 3),
                       {.numerics = numerics, .nudge = nudge, .number = number});
}

const Values& activation(const DoubleResult& result, const std::string& name) {
  for (const DoubleTensor& one : result.activations) {
    if (one.name == name) return one.values;
  }
  throw std::runtime_error(name);
}

double distance(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

TEST(nudged, units_are_those_of_the_format) {
  EXPECT_EQ(unit_in_the_last_place(1.0, 23), 0x1p-23);
  EXPECT_EQ(unit_in_the_last_place(1.999, 23), 0x1p-23);
  EXPECT_EQ(unit_in_the_last_place(-2.0, 23), 0x1p-22);
  EXPECT_EQ(unit_in_the_last_place(0.75, 7), 0x1p-8);
  EXPECT_EQ(unit_in_the_last_place(0.0, 7), 0.0);
}

TEST(nudged, a_pass_without_nudges_is_the_pass_in_double) {
  const Scenario scenario = hybrid();
  const Microbatch microbatch = documents_of({3, 0, 4, 1, 5, 11}, scenario.model.vocab, 3);
  const DoubleResult plain = run_in_double(scenario, microbatch, std::vector<Values>());
  EXPECT_EQ(pass(0).loss, plain.loss);
  EXPECT_EQ(pass(0).gradients, plain.gradients);
}

// The embedding is read, which moves it by one unit, and stored, which moves it by another.
TEST(nudged, a_stored_value_moves_by_a_unit_at_each_place) {
  const Values want = activation(pass(0), "embedding.out");
  const Values got = activation(pass(1), "embedding.out");
  int up = 0, down = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double units = (got[i] - want[i]) / std::max(unit_in_the_last_place(want[i], 23), 1e-300);
    EXPECT_LE(std::abs(units), 3.001) << i;  // Three where the first crosses a power of two.
    up += units > 1;
    down += units < -1;
  }
  EXPECT_GT(up, 10);
  EXPECT_GT(down, 10);
}

TEST(nudged, what_is_kept_in_fp32_moves_in_both_precisions) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    EXPECT_NE(activation(pass(1, numerics), "final_norm.rstd"),
              activation(pass(0, numerics), "final_norm.rstd"));
  }
}

TEST(nudged, seeds_and_microbatches_have_their_own_and_equal_ones_the_same) {
  const Values one = pass(1).gradients[0];
  EXPECT_EQ(one, pass(1).gradients[0]);
  EXPECT_NE(one, pass(2).gradients[0]);
  EXPECT_NE(one, pass(1, Numerics::fp32, 1).gradients[0]);
}

// 2^16 lies between the units, and nothing else, as long as nothing bends.
TEST(nudged, bf16_moves_65536_times_as_far) {
  const Values fine = pass(0).gradients.back(), coarse = pass(0, Numerics::bf16).gradients.back();
  const double of_fp32 = distance(pass(1).gradients.back(), fine);
  const double of_bf16 = distance(pass(1, Numerics::bf16).gradients.back(), coarse);
  EXPECT_GT(of_bf16 / of_fp32, 30000);
  EXPECT_LT(of_bf16 / of_fp32, 130000);
}

// The rule of R16 on the oracle itself: the steps in fp32 are as near as nudging says.
TEST(nudged, the_oracle_in_fp32_is_within_what_nudging_moves) {
  const Scenario scenario = hybrid();
  const Microbatch microbatch = documents_of({3, 0, 4, 1, 5, 11}, scenario.model.vocab, 3);
  StepData data{.microbatches = {microbatch}, .targets = 0};
  for (const Document& one : microbatch.documents)
    data.targets += std::ranges::count_if(one.targets, [](std::int32_t t) { return t >= 0; });
  const StepResult got = Oracle(scenario, {}).step(0, data);
  const DoubleResult want = pass(0);
  for (std::size_t p = 0; p < want.gradients.size(); ++p) {
    double moved = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      moved += std::pow(distance(pass(seed).gradients[p], want.gradients[p]), 2) / 8;
    const std::vector<float>& gradient = got.microbatches[0].gradients[p];
    const double error = distance({gradient.begin(), gradient.end()}, want.gradients[p]);
    EXPECT_LE(error, 8 * std::sqrt(moved)) << p;
    EXPECT_GT(error, 0.001 * std::sqrt(moved)) << p;
  }
}

}  // namespace
}  // namespace lockstep::oracle
