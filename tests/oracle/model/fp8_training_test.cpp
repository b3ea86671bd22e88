// Training in fp8 numerics (arithmetic.md, section 5): what its recipes share, what neighbours may
// change, and what they may not.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "oracle/arithmetic/primitives.h"
#include "oracle/model/fp8_operands.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

// Widths above 128, so that sums have more than one run.
Scenario scenario_of(const std::string& pattern, Fp8Recipe recipe = Fp8Recipe::current) {
  Scenario s;
  s.model.pattern = pattern;
  s.model.hidden = 144;
  s.model.mlp.hidden = 160;
  s.model.moe.hidden = 32;
  s.model.moe.shared_hidden = 16;
  s.model.moe.capacity_factor.reset();
  s.model.moe.pad_to_capacity = false;
  s.fp8.recipe = recipe;
  s.fp8.history = 2;
  return s;
}

Options in(Numerics numerics) {
  Options options;
  options.numerics = numerics;
  return options;
}
Options in_fp8() { return in(Numerics::fp8); }

StepData data_of(std::uint32_t seed) { return step_of({{9, 1, 0, 20}, {30, 4}}, 64, seed); }

std::vector<StepResult> run(const Scenario& s, int steps, std::string* digest = nullptr,
                            bool evaluates = false) {
  Oracle oracle(s, in_fp8());
  std::vector<StepResult> results;
  for (int step = 0; step < steps; ++step) {
    results.push_back(oracle.step(step, data_of(step)));
    if (evaluates) oracle.evaluate(step, data_of(100));
  }
  if (digest != nullptr) *digest = oracle.weight_digest();
  return results;
}

constexpr const char* kAll = "M*-E";

TEST(fp8_training, differs_from_bf16_and_stays_near) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
    const Scenario s = scenario_of(kAll, recipe);
    Oracle fp8(s, in_fp8()), bf16(s, in(Numerics::bf16));
    for (int step = 0; step < 3; ++step) {
      const float a = fp8.step(step, data_of(step)).loss, b = bf16.step(step, data_of(step)).loss;
      EXPECT_NE(bits(a), bits(b));
      EXPECT_NEAR(a, b, 0.02f * b);
    }
    EXPECT_NE(fp8.weight_digest(), bf16.weight_digest());
  }
}

TEST(fp8_training, step_0_of_both_recipes_is_the_same) {
  std::string current, delayed, later_current, later_delayed;
  run(scenario_of(kAll), 1, &current);
  run(scenario_of(kAll, Fp8Recipe::delayed), 1, &delayed);
  EXPECT_EQ(current, delayed);
  run(scenario_of(kAll), 2, &later_current);
  run(scenario_of(kAll, Fp8Recipe::delayed), 2, &later_delayed);
  EXPECT_NE(later_current, later_delayed);
}

TEST(fp8_training, the_most_recent_amax_needs_no_history) {
  Scenario s = scenario_of(kAll, Fp8Recipe::delayed);
  s.fp8.algorithm = Fp8Algorithm::most_recent;
  std::string two, many, largest;
  run(s, 4, &two);
  s.fp8.history = 1024;
  run(s, 4, &many);
  EXPECT_EQ(two, many);
  s.fp8.algorithm = Fp8Algorithm::max;
  s.fp8.margin = 1;
  run(s, 4, &largest);
  EXPECT_NE(two, largest);
}

// Histories and exponents alone: a margin that no step has used yet moves no weight.
TEST(fp8_training, the_scaling_state_has_a_digest_of_its_own) {
  const auto digests = [](const Scenario& s, int steps) {
    Oracle oracle(s, in_fp8());
    for (int step = 0; step < steps; ++step) oracle.step(step, data_of(step));
    return std::pair(oracle.weight_digest(), oracle.scaling_digest());
  };
  EXPECT_EQ(digests(scenario_of(kAll), 1).second, "");
  Scenario s = scenario_of(kAll, Fp8Recipe::delayed);
  const auto before = digests(s, 1);
  EXPECT_EQ(before, digests(s, 1));
  s.fp8.margin = 2;
  const auto after = digests(s, 1);
  EXPECT_EQ(before.first, after.first);
  EXPECT_NE(before.second, after.second);
}

TEST(fp8_training, an_evaluation_records_nothing) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
    std::string without, with;
    run(scenario_of(kAll, recipe), 3, &without);
    run(scenario_of(kAll, recipe), 3, &with, true);
    EXPECT_EQ(without, with);
  }
}

TEST(fp8_training, sharded_gradients_do_not_depend_on_the_ranks) {
  Scenario s = scenario_of(kAll, Fp8Recipe::delayed);
  s.fsdp.strategy = Sharding::optim_grads;
  std::string one, two;
  run(s, 3, &one);
  s.parallel.data = 2;
  run(s, 3, &two);
  EXPECT_EQ(one, two);
}

// Exponents follow from the amaxes of the segment, which documents in another order have too.
TEST(fp8_training, documents_may_change_places) {
  const Scenario s = scenario_of("M*-");
  Microbatch documents = documents_of({9, 1, 17, 5, 20}, 64, 3);
  const auto before = document_losses(s, documents, in_fp8());
  std::reverse(documents.documents.begin(), documents.documents.end());
  const auto after = document_losses(s, documents, in_fp8());
  for (const auto& [number, losses] : before) EXPECT_TRUE(same_bits(losses, after.at(number)));
}

// Weights of a model "-" whose MLP listens to its smallest inputs: an exponent shows only in codes
// near the end of the type's range.
std::vector<Parameter> spread(std::vector<Parameter> parameters) {
  for (Parameter& parameter : parameters) {
    if (parameter.layer != 0 || (!parameter.is_vector && parameter.cols != 144)) continue;
    for (std::size_t e = 0; e < parameter.weight.size(); ++e) {
      const int magnitude = e % 16 == 15 ? 14 : 0;  // 144 columns: the same in every row.
      parameter.weight[e] =
          std::ldexp(parameter.weight[e], parameter.is_vector ? -magnitude : magnitude);
    }
  }
  return parameters;
}

// The losses of document 0 in the last of two steps, beside a neighbour of these tokens.
std::vector<float> beside(const Scenario& s, std::uint32_t neighbour) {
  Oracle oracle(s, in_fp8());
  oracle.restore(spread(oracle.parameters()), 0);
  oracle.step(0, data_of(0));
  // So few rows that their largest value lies on either side of where the exponent moves.
  Microbatch both = documents_of({3}, 64, 1);
  Document other = documents_of({3}, 64, neighbour).documents[0];
  other.number = 1;
  both.documents.push_back(other);
  const StepResult result = oracle.step(1, {{both}, 4});
  const Tensor& all = tensor(result.microbatches[0], "token_loss");
  return {all.values.begin(), all.values.begin() + 3};
}

TEST(fp8_training, a_neighbour_moves_exponents_of_the_current_recipe_alone) {
  const Scenario current = scenario_of("-"), delayed = scenario_of("-", Fp8Recipe::delayed);
  int moved = 0;
  for (std::uint32_t neighbour = 2; neighbour < 40; ++neighbour) {
    moved += same_bits(beside(current, 2), beside(current, neighbour)) ? 0 : 1;
    EXPECT_TRUE(same_bits(beside(delayed, 2), beside(delayed, neighbour)));
  }
  EXPECT_GT(moved, 0);
}

TEST(fp8_training, operands_are_numbered_as_the_digest_counts) {
  const Scenario s = scenario_of("*E");
  const Fp8Operands operands(s.model);
  using enum Fp8Layer;
  EXPECT_EQ(operands.number(0, qkv_linear, Fp8Role::x, 0), 0u);
  EXPECT_EQ(operands.number(0, qkv_linear, Fp8Role::weight, 0), 1u);
  EXPECT_EQ(operands.number(0, attn_proj, Fp8Role::dy, 0), 5u);
  EXPECT_EQ(operands.number(1, expert_fc1, Fp8Role::x, 3), 9u);
  EXPECT_EQ(operands.number(1, expert_fc1, Fp8Role::weight, 0), 10u);
  EXPECT_EQ(operands.number(1, expert_fc2, Fp8Role::dy, 3), 29u);
  EXPECT_EQ(operands.number(1, shared_fc2, Fp8Role::dy, 0), 35u);
  EXPECT_EQ(operands.size(), 36u);
  EXPECT_THROW(operands.number(0, mlp_fc1, Fp8Role::x, 0), std::logic_error);
}

// Weights are read as bf16, and their amax is the parameter's.
TEST(fp8_training, the_amax_of_a_weight_is_that_of_its_copy) {
  const Scenario s = scenario_of("-");
  Oracle oracle(s, in_fp8());
  float largest = 0;
  for (const Parameter& parameter : oracle.parameters()) {
    if (parameter.layer != 0 || parameter.rows != s.model.mlp.hidden) continue;
    for (const float w : parameter.weight) largest = std::max(largest, abs(Bf16::st(w)));
  }
  const StepResult result = oracle.step(0, data_of(0));
  const std::size_t number = Fp8Operands(s.model).number(0, Fp8Layer::mlp_fc1, Fp8Role::weight, 0);
  EXPECT_GT(largest, 0.0f);
  EXPECT_EQ(result.microbatches[0].amaxes[number], bits(largest));
}

TEST(fp8_training, an_operand_with_an_infinity_is_named) {
  const Scenario s = scenario_of("-");
  Oracle oracle(s, in_fp8());
  std::vector<Parameter> parameters = oracle.parameters();
  for (Parameter& parameter : parameters) {
    if (parameter.layer == 0 && !parameter.is_vector)
      parameter.weight[3] = std::numeric_limits<float>::infinity();
  }
  EXPECT_EQ(oracle.step(0, data_of(0)).microbatches[0].fp8_failure, "");
  oracle.restore(parameters, 0);
  EXPECT_EQ(oracle.step(0, data_of(0)).microbatches[0].fp8_failure,
            "layers.0.mlp_fc1.w of expert 0");
}

}  // namespace
}  // namespace lockstep::oracle
