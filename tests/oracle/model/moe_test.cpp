// Layers of experts in whole steps: what must not depend on how rows are dispatched, and what a
// step leaves.
#include "oracle/model/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "oracle/model/expert_bias.h"
#include "oracle/model/layout.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;
using Indices = std::vector<std::int64_t>;

Scenario experts() {
  Scenario scenario;
  scenario.model.pattern = "*E";
  scenario.model.moe.experts = 6;
  scenario.model.moe.capacity_factor = Ratio{800'000};
  scenario.model.moe.shared_hidden = 16;
  scenario.model.moe.aux_loss = Ratio{50'000};
  scenario.model.moe.z_loss = Ratio{10'000};
  return scenario;
}

Scenario dropless(Scenario scenario) {
  scenario.model.moe.capacity_factor = std::nullopt;
  scenario.model.moe.pad_to_capacity = false;
  return scenario;
}

Options in(Numerics numerics) {
  Options options;
  options.numerics = numerics;
  return options;
}

StepData documents(std::uint32_t seed = 1) {
  return step_of({{17, 1, 0, 30}, {5, 16, 33}}, 64, seed);
}

TEST(parameters, follow_the_table) {
  Scenario scenario = experts();
  scenario.model.mlp.activation = MlpActivation::swiglu;
  const auto at = [&](std::size_t p) {
    const Layout layout = make_layout(scenario.model);
    const ParameterLayout& one = layout.parameters.at(p);
    return one.name + " " + std::to_string(one.rows) + " " + std::to_string(one.cols);
  };
  EXPECT_EQ(at(4), "layers.1.norm.gain 1 32");
  EXPECT_EQ(at(5), "layers.1.router.weight 6 32");
  EXPECT_EQ(at(6), "layers.1.experts.fc1.weight 384 32");
  EXPECT_EQ(at(7), "layers.1.experts.fc2.weight 192 32");
  EXPECT_EQ(at(8), "layers.1.shared.fc1.weight 32 32");
  EXPECT_EQ(at(9), "layers.1.shared.fc2.weight 32 16");
  EXPECT_EQ(at(10), "final_norm.gain 1 32");
  scenario.model.moe.shared_hidden = 0;
  EXPECT_EQ(at(8), "final_norm.gain 1 32");
}

// Loss, gradients and weights of two steps.
std::vector<float> outcome(const Scenario& scenario, Numerics numerics) {
  Oracle oracle(scenario, in(numerics));
  std::vector<float> all;
  for (std::uint32_t s = 0; s < 2; ++s) {
    const StepResult result = oracle.step(s, documents(1 + s));
    all.push_back(result.loss);
    for (const MicrobatchResult& microbatch : result.microbatches) {
      for (const auto& g : microbatch.gradients) all.insert(all.end(), g.begin(), g.end());
      for (const auto& entry : microbatch.experts)
        all.insert(all.end(), {entry.aux_loss, entry.z_loss});
    }
  }
  for (const Parameter& p : oracle.parameters())
    all.insert(all.end(), p.weight.begin(), p.weight.end());
  return all;
}

std::int64_t sum(const Indices& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0});
}

std::int64_t dropped_pairs(const Scenario& scenario) {
  const StepResult result = Oracle(scenario, {}).step(0, documents());
  return sum(result.microbatches[0].experts[0].dropped) +
         sum(result.microbatches[1].experts[0].dropped);
}

TEST(padding_of_buffers, changes_no_bit) {
  Scenario padded = experts(), tight = experts();
  tight.model.moe.pad_to_capacity = false;
  ASSERT_GT(dropped_pairs(padded), 0);
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    EXPECT_TRUE(same_bits(outcome(padded, numerics), outcome(tight, numerics)));
  }
}

TEST(a_capacity_that_is_never_reached, is_dropless) {
  Scenario wide = experts();
  wide.model.moe.capacity_factor = Ratio{6'000'000};
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    EXPECT_TRUE(same_bits(outcome(wide, numerics), outcome(dropless(wide), numerics)));
    EXPECT_FALSE(same_bits(outcome(wide, numerics), outcome(experts(), numerics)));
  }
}

// The trace of a dropped pair: nothing for the row's other experts.
TEST(a_dropped_pair, leaves_the_weights_as_they_are) {
  const StepData data = documents();
  const StepResult with = Oracle(experts(), {}).step(0, data),
                   without = Oracle(dropless(experts()), {}).step(0, data);
  for (int m = 0; m < 2; ++m) {
    for (const char* name :
         {"layers.1.router.logits", "layers.1.router.scores", "layers.1.router.weights"}) {
      EXPECT_TRUE(same_bits(tensor(with.microbatches[m], name).values,
                            tensor(without.microbatches[m], name).values));
    }
    EXPECT_EQ(with.microbatches[m].experts[0].chosen, without.microbatches[m].experts[0].chosen);
    EXPECT_EQ(sum(without.microbatches[m].experts[0].dropped), 0);
  }
}

TEST(statistics, count_the_rows_of_documents) {
  const StepResult result = Oracle(experts(), {}).step(0, documents());
  EXPECT_EQ(sum(result.microbatches[0].experts[0].chosen), 2 * 48);
  EXPECT_EQ(sum(result.microbatches[1].experts[0].chosen), 2 * 54);
  const std::int64_t capacity = *expert_capacity(experts().model.moe, 64, kNone);
  for (const MicrobatchResult& microbatch : result.microbatches) {
    const ExpertStatistics<float>& entry = microbatch.experts.at(0);
    EXPECT_EQ(entry.layer, 1);
    for (std::size_t e = 0; e < 6; ++e) {
      EXPECT_EQ(entry.chosen[e] - entry.dropped[e], std::min(entry.chosen[e], capacity)) << e;
    }
    EXPECT_EQ(tensor(microbatch, "layers.1.expert_fc1").rows, 6 * capacity);
  }
}

TEST(moe_rows_of_no_document, are_zero_everywhere) {
  Scenario scenario = experts();
  scenario.data.gaps = 2;
  const StepResult result = Oracle(scenario, {}).step(0, step_of({{20, 0, 7}}, 64, 3));
  int seen = 0;
  for (const Tensor& tensor : result.microbatches[0].activations) {
    if (tensor.layer != 1 || tensor.rows != 64) continue;
    for (const std::int64_t row : {20, 21, 29, 30, 63}) {
      for (std::int64_t c = 0; c < tensor.cols; ++c, ++seen)
        EXPECT_EQ(bits(tensor.values[row * tensor.cols + c]), 0u) << tensor.name;
    }
  }
  EXPECT_GT(seen, 500);
}

// Rule 9: what the router makes is fp32, all else is stored as bf16.
TEST(in_bf16, only_the_router_keeps_fp32) {
  Oracle oracle(experts(), in(Numerics::bf16));
  const MicrobatchResult result = oracle.step(0, documents()).microbatches[0];
  int router = 0;
  for (const Tensor& tensor : result.activations) {
    if (tensor.layer != 1 || tensor.name == "layers.1.norm.rstd") continue;
    const bool narrow = std::all_of(tensor.values.begin(), tensor.values.end(),
                                    [](float value) { return (bits(value) & 0xffffu) == 0; });
    const bool of_router = tensor.name.find("router") != std::string::npos;
    EXPECT_EQ(narrow, !of_router) << tensor.name;
    router += of_router ? 1 : 0;
  }
  EXPECT_EQ(router, 3);
}

std::vector<float> token_losses(const Scenario& scenario, const Microbatch& microbatch) {
  return tensor(Oracle(scenario, {}).step(0, {{microbatch}, 50}).microbatches[0], "token_loss")
      .values;
}

// Without a capacity no row takes another's place.
TEST(moe_documents, do_not_see_each_other_without_a_capacity) {
  Microbatch microbatch = documents_of({17, 1, 0, 30, 9}, 64, 1);
  const std::vector<float> before = token_losses(dropless(experts()), microbatch);
  for (std::int32_t& token : microbatch.documents[0].tokens) token = (token + 7) % 64;
  const std::vector<float> after = token_losses(dropless(experts()), microbatch);
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + 17, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + 17, before.end(), after.begin() + 17));
}

TEST(moe_a_microbatch_without_documents, has_no_losses) {
  for (const Scenario& scenario : {experts(), dropless(experts())}) {
    for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
      Oracle oracle(scenario, in(numerics));
      const StepResult result = oracle.step(0, step_of({{}, {0, 0}}, 64, 3));
      EXPECT_EQ(bits(result.loss), 0u);
      EXPECT_EQ(bits(result.norm), 0u);
      EXPECT_EQ(bits(result.microbatches[1].experts[0].aux_loss), 0u);
      EXPECT_EQ(bits(result.microbatches[1].experts[0].z_loss), 0u);
    }
  }
}

// Halving is exact: the losses are divided by the microbatches of the step.
TEST(losses_of_experts, are_shared_among_the_microbatches) {
  const Microbatch microbatch = documents_of({17, 30}, 64, 1);
  const auto entry = [&](int count) {
    const StepData data{std::vector<Microbatch>(count, microbatch), 40};
    return Oracle(experts(), {}).step(0, data).microbatches.back().experts.at(0);
  };
  const ExpertStatistics<float> one = entry(1), two = entry(2);
  EXPECT_GT(one.aux_loss, 0);
  EXPECT_GT(one.z_loss, 0);
  EXPECT_EQ(bits(two.aux_loss), bits(mul(one.aux_loss, 0.5f)));
  EXPECT_EQ(bits(two.z_loss), bits(mul(one.z_loss, 0.5f)));
}

// coef * E / (k Tr^2) * sum of n_e p_e is coef where every expert has its share.
TEST(losses_of_experts, have_their_values_where_the_router_is_level) {
  Scenario scenario = dropless(experts());
  scenario.model.moe.top_k = 6;
  Oracle oracle(scenario, {});
  std::vector<Parameter> parameters = oracle.parameters();
  std::fill(parameters[5].weight.begin(), parameters[5].weight.end(), 0.0f);
  oracle.restore(parameters, 0);
  const StepResult result = oracle.step(0, step_of({{17, 30}}, 64, 1));
  const ExpertStatistics<float>& entry = result.microbatches[0].experts[0];
  EXPECT_NEAR(entry.aux_loss, 0.05, 1e-7);
  EXPECT_NEAR(entry.z_loss, 0.01 * std::log(6.0) * std::log(6.0), 1e-7);
}

// Experts that say nothing leave the shared expert, which is an MLP.
TEST(the_shared_expert, is_an_mlp) {
  Scenario moe = dropless(experts()), dense = experts();
  moe.model.moe.aux_loss = moe.model.moe.z_loss = Ratio{0};
  dense.model.pattern = "*-";
  dense.model.mlp.hidden = 16;
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    Oracle with(moe, in(numerics)), without(dense, in(numerics));
    std::vector<Parameter> parameters = with.parameters();
    std::fill(parameters[7].weight.begin(), parameters[7].weight.end(), 0.0f);  // experts.fc2
    with.restore(parameters, 0);
    std::vector<Parameter> mlp = without.parameters();
    for (const auto& [to, from] : {std::pair{5, 8}, {6, 9}, {7, 10}, {8, 11}})
      mlp[to].weight = parameters[from].weight;
    without.restore(mlp, 0);
    const StepResult a = with.step(0, documents()), b = without.step(0, documents());
    EXPECT_EQ(bits(a.loss), bits(b.loss));
    for (int m = 0; m < 2; ++m) {
      EXPECT_TRUE(same_bits(tensor(a.microbatches[m], "layers.1.shared_out").values,
                            tensor(b.microbatches[m], "layers.1.proj").values));
      EXPECT_TRUE(same_bits(a.microbatches[m].gradients[8], b.microbatches[m].gradients[5]));
      EXPECT_TRUE(same_bits(a.microbatches[m].gradients[9], b.microbatches[m].gradients[6]));
    }
  }
}

Scenario biased() {
  Scenario scenario = experts();
  scenario.model.moe.router = Router::sigmoid;
  scenario.model.moe.expert_bias = true;
  return scenario;
}

TEST(expert_bias, is_updated_once_a_step_from_all_microbatches) {
  Oracle oracle(biased(), {});
  EXPECT_EQ(oracle.expert_bias()[1], std::vector<float>(6));
  const StepResult result = oracle.step(0, documents());
  Indices all(6);
  for (const MicrobatchResult& microbatch : result.microbatches) {
    for (std::size_t e = 0; e < 6; ++e) all[e] += microbatch.experts[0].chosen[e];
  }
  std::vector<float> want(6);
  update_expert_bias(all, want, kNone);
  EXPECT_TRUE(same_bits(oracle.expert_bias()[1], want));
  EXPECT_TRUE(oracle.expert_bias()[0].empty());
  oracle.evaluate(0, documents(5));
  EXPECT_TRUE(same_bits(oracle.expert_bias()[1], want));
}

TEST(moe_training, continues_from_a_restored_state) {
  Oracle first(biased(), {}), second(biased(), {}), forgetful(biased(), {});
  for (std::uint32_t s = 0; s < 4; ++s) first.step(s, documents(1 + s));
  second.restore(first.parameters(), 4, first.expert_bias());
  forgetful.restore(first.parameters(), 4);
  for (Oracle* oracle : {&first, &second, &forgetful}) {
    for (std::uint32_t s = 4; s < 8; ++s) oracle->step(s, documents(1 + s));
  }
  EXPECT_EQ(first.weight_digest(), second.weight_digest());
  EXPECT_EQ(first.expert_bias(), second.expert_bias());
  EXPECT_NE(first.weight_digest(), forgetful.weight_digest());
}

}  // namespace
}  // namespace lockstep::oracle
