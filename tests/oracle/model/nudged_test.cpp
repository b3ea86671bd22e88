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

// How far a gradient of the oracle's is off, and how far nudging moves it, by the mean square of 8.
struct Off {
  double error = 0, moved = 0, length = 0;
};

Off off(const Scenario& scenario, const Microbatch& microbatch, DoublePass pass,
        const std::string& parameter, Oracle& oracle) {
  const std::vector<std::string> names = parameter_names(scenario);
  const auto p = std::ranges::find(names, parameter) - names.begin();
  StepData data{.microbatches = {microbatch}, .targets = 0};
  data.targets = count_targets(data);
  const std::vector<float> got = oracle.step(0, data).microbatches[0].gradients[p];
  const Values want = run_in_double(scenario, microbatch, pass).gradients[p];
  Off off;
  off.error = distance({got.begin(), got.end()}, want);
  off.length = distance(want, Values(want.size()));
  for (pass.nudge = 1; pass.nudge <= 8; ++pass.nudge) {
    const DoubleResult nudged = run_in_double(scenario, microbatch, pass);
    off.moved += std::pow(distance(nudged.gradients[p], want), 2) / 8;
  }
  off.moved = std::sqrt(off.moved);
  return off;
}

// Both experts are chosen, so that the balance loss has the same slope for them, and its gradient
// would be 0 if the scores' sum were 1. Their roundings, of fp32 in both precisions, are all of it.
TEST(nudged, what_a_router_stores_moves_in_both_precisions) {
  Scenario scenario = hybrid();
  scenario.model.pattern = "E";
  scenario.model.moe.experts = 2;
  scenario.model.moe.hidden = 4;
  scenario.model.moe.aux_loss.millionths = 1'000'000;
  Microbatch microbatch = documents_of({3, 0, 4, 1, 5, 11}, scenario.model.vocab, 3);
  for (Document& one : microbatch.documents) std::ranges::fill(one.targets, -1);
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    Options options;
    options.numerics = numerics;
    Oracle oracle(scenario, options);
    DoublePass pass;
    pass.numerics = numerics;
    const Off router = off(scenario, microbatch, pass, "layers.0.router.weight", oracle);
    EXPECT_LT(router.length, 1e-14);
    EXPECT_GT(router.error, 1e-9);
    EXPECT_LE(router.error, 4 * router.moved);
    EXPECT_GE(router.error, router.moved / 100);
  }
}

// The rows of the head are equal, as after a weight decay that takes all of them: the gradient of
// its input is then what a sum of equal terms leaves beside that of the target, and each of its
// additions is rounded the same way. Nudging terms by chance moves it by less than that.
TEST(nudged, sums_of_equal_terms_are_rounded_in_fp32) {
  Scenario scenario = hybrid();
  scenario.model.pattern = "-";
  scenario.model.vocab = 1500;
  const Microbatch microbatch = documents_of({3, 0, 4, 1, 5, 11}, scenario.model.vocab, 3);
  Oracle oracle(scenario, {});
  std::vector<Parameter> parameters = oracle.parameters();
  const std::vector<std::string> names = parameter_names(scenario);
  const auto head = std::ranges::find(names, "head.weight") - names.begin();
  for (std::size_t e = 0; e < parameters[head].weight.size(); ++e)
    parameters[head].weight[e] = 0.0625F + 0.001F * static_cast<float>(e % 12);
  DoublePass pass;
  for (const Parameter& one : parameters)
    pass.weights.emplace_back(one.weight.begin(), one.weight.end());
  oracle.restore(parameters, 0);
  const Off embedding = off(scenario, microbatch, pass, "embedding.weight", oracle);
  EXPECT_LE(embedding.error, 2 * embedding.moved);
}

}  // namespace
}  // namespace lockstep::oracle
