// Layers of experts: choice, capacity and places by hand, and what must not depend on how rows are dispatched.
#include "oracle/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "oracle/expert_bias.h"
#include "oracle/layout.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

const Mutant kNone;

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

StepData documents(std::uint32_t seed = 1) { return step_of({{17, 1, 0, 30}, {5, 16, 33}}, 64, seed); }

std::vector<std::int64_t> chosen(const std::vector<float>& keys, std::int64_t slots) {
  std::vector<std::int64_t> experts(slots);
  choose(keys, slots, experts.data(), false);
  return experts;
}

using Indices = std::vector<std::int64_t>;

TEST(choice, takes_the_largest_keys_in_their_order) {
  EXPECT_EQ(chosen({0.1f, 0.4f, 0.2f, 0.3f}, 3), (Indices{1, 3, 2}));
  EXPECT_EQ(chosen({-3, -1, -2}, 2), (Indices{1, 2}));
}

TEST(choice, gives_ties_to_the_lowest_index) {
  EXPECT_EQ(chosen({1, 1, 1, 1}, 2), (Indices{0, 1}));
  EXPECT_EQ(chosen({0.5f, 1, 0.5f, 1, 0.5f}, 4), (Indices{1, 3, 0, 2}));
  EXPECT_EQ(chosen({-0.0f, 0.0f, -0.0f}, 3), (Indices{0, 1, 2}));
}

Pack rows_at(const std::vector<Piece>& documents, std::int64_t rows) {
  Pack pack;
  pack.rows = rows;
  pack.documents = pack.runs = documents;
  return pack;
}

// Sigmoids of 17 and of 40 are both 1 in fp32, and softmax of equal logits is equal.
TEST(routing, has_ties_where_scores_are_equal) {
  Matrix<float> logits(2, 4);
  logits.values = {-1, 17, 40, 0.5f, 3, 2, 3, 3};
  const Pack pack = rows_at({{0, 2, 0}}, 2);
  const Routing<float> sigmoid = route(pack, {Router::sigmoid, 2, nullptr}, logits, kNone);
  EXPECT_EQ(sigmoid.experts.values, (Indices{1, 2, 0, 2}));
  const Routing<float> softmax = route(pack, {Router::softmax, 2, nullptr}, logits, kNone);
  EXPECT_EQ(softmax.experts.values, (Indices{2, 1, 0, 2}));
  EXPECT_EQ(bits(softmax.weights.row(1)[0]), bits(0.5f));
  EXPECT_EQ(softmax.chosen, (Indices{1, 1, 2, 0}));
}

// The bias moves the choice; the weights are made of the scores alone.
TEST(routing, uses_the_bias_for_the_choice_alone) {
  Matrix<float> logits(1, 3);
  logits.values = {2, 1, 0};
  const Pack pack = rows_at({{0, 1, 0}}, 1);
  const float bias[] = {-2, 0, 1};
  const Routing<float> routing = route(pack, {Router::sigmoid, 2, bias}, logits, kNone);
  EXPECT_EQ(routing.experts.values, (Indices{2, 1}));
  const float p2 = sigmoid(0.0f), p1 = sigmoid(1.0f), inverse = div(1.0f, add(p2, p1));
  EXPECT_EQ(bits(routing.weights.values[0]), bits(mul(p2, inverse)));
  EXPECT_EQ(bits(routing.weights.values[1]), bits(mul(p1, inverse)));
}

TEST(routing, of_one_slot_keeps_its_score) {
  Matrix<float> logits(1, 2);
  logits.values = {0.25f, 1};
  const Routing<float> routing = route(rows_at({{0, 1, 0}}, 1), {Router::sigmoid, 1, nullptr}, logits, kNone);
  EXPECT_EQ(bits(routing.weights.values[0]), bits(sigmoid(1.0f)));
}

std::int64_t capacity(std::int64_t millionths, std::int64_t top_k, std::int64_t rows, std::int64_t experts) {
  Scenario::Model::Moe moe;
  moe.capacity_factor = Ratio{millionths};
  moe.top_k = top_k;
  moe.experts = experts;
  return *expert_capacity(moe, rows, kNone);
}

TEST(capacity, is_the_share_of_all_rows_rounded_up) {
  EXPECT_EQ(capacity(2'000'000, 2, 64, 4), 64);
  EXPECT_EQ(capacity(1'250'000, 2, 64, 4), 40);
  EXPECT_EQ(capacity(1'000'000, 1, 10, 4), 3);
  EXPECT_EQ(capacity(1'000'000, 1, 9, 4), 3);
  EXPECT_EQ(capacity(1, 1, 64, 4), 1);
  EXPECT_EQ(capacity(100'000, 3, 10, 3), 2);  // In double 0.1 * 3 is above 0.3, and so the quotient above 1.
}

// Four rows of documents with a row of none between them; experts 0 and 1 in both orders.
TEST(places, go_by_row_then_slot) {
  Routing<float> routing;
  routing.experts = Matrix<std::int64_t>(5, 2);
  routing.experts.values = {1, 0, 0, 1, 0, 0, 2, 1, 0, 1};
  routing.chosen = {3, 4, 1};
  const Pack pack = rows_at({{0, 2, 0}, {3, 2, 1}}, 5);
  const Dispatch padded = dispatch(pack, routing, 2, true, kNone);
  EXPECT_EQ(padded.place.values, (Indices{2, 0, 1, 3, -1, -1, 4, -1, -1, -1}));
  EXPECT_EQ(padded.rows, (Indices{2, 2, 1}));
  EXPECT_EQ(padded.buffer, 6);
  const Dispatch tight = dispatch(pack, routing, 2, false, kNone);
  EXPECT_EQ(tight.place.values, padded.place.values);
  EXPECT_EQ(tight.buffer, 5);
  const Dispatch all = dispatch(pack, routing, std::nullopt, false, kNone);
  EXPECT_EQ(all.place.values, (Indices{3, 0, 1, 4, -1, -1, 7, 5, 2, 6}));
  EXPECT_EQ(all.buffer, 8);
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
      for (const auto& entry : microbatch.experts) all.insert(all.end(), {entry.aux_loss, entry.z_loss});
    }
  }
  for (const Parameter& p : oracle.parameters()) all.insert(all.end(), p.weight.begin(), p.weight.end());
  return all;
}

std::int64_t sum(const Indices& numbers) { return std::accumulate(numbers.begin(), numbers.end(), std::int64_t{0}); }

std::int64_t dropped_pairs(const Scenario& scenario) {
  const StepResult result = Oracle(scenario, {}).step(0, documents());
  return sum(result.microbatches[0].experts[0].dropped) + sum(result.microbatches[1].experts[0].dropped);
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

// What a dropped pair leaves behind: nothing for the row's other experts.
TEST(a_dropped_pair, leaves_the_weights_as_they_are) {
  const StepData data = documents();
  const StepResult with = Oracle(experts(), {}).step(0, data), without = Oracle(dropless(experts()), {}).step(0, data);
  for (int m = 0; m < 2; ++m) {
    for (const char* name : {"layers.1.router.logits", "layers.1.router.scores", "layers.1.router.weights"}) {
      EXPECT_TRUE(same_bits(tensor(with.microbatches[m], name).values, tensor(without.microbatches[m], name).values));
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

TEST(rows_of_no_document, are_zero_everywhere) {
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

std::vector<float> token_losses(const Scenario& scenario, const Microbatch& microbatch) {
  return tensor(Oracle(scenario, {}).step(0, {{microbatch}, 50}).microbatches[0], "token_loss").values;
}

// Without a capacity no row takes another's place.
TEST(documents, do_not_see_each_other_without_a_capacity) {
  Microbatch microbatch = documents_of({17, 1, 0, 30, 9}, 64, 1);
  const std::vector<float> before = token_losses(dropless(experts()), microbatch);
  for (std::int32_t& token : microbatch.documents[0].tokens) token = (token + 7) % 64;
  const std::vector<float> after = token_losses(dropless(experts()), microbatch);
  EXPECT_FALSE(std::equal(before.begin(), before.begin() + 17, after.begin()));
  EXPECT_TRUE(std::equal(before.begin() + 17, before.end(), after.begin() + 17));
}

TEST(a_microbatch_without_documents, has_no_losses) {
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
    for (const auto& [to, from] : {std::pair{5, 8}, {6, 9}, {7, 10}, {8, 11}}) mlp[to].weight = parameters[from].weight;
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

TEST(expert_bias, moves_towards_what_was_not_chosen) {
  std::vector<float> bias{0.5f, 0, 0, -1};
  update_expert_bias({3, 1, 2, 2}, bias, kNone);
  EXPECT_TRUE(same_bits(bias, {sub(0.5f, 0.001f), 0.001f, 0, -1}));
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

TEST(training, continues_from_a_restored_state) {
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
