// Every backward formula against differences of the loss, in double.
//
// Along a direction v of signs the loss is a smooth function f of one number; (8 (f(h) - f(-h)) -
// (f(2h) - f(-2h))) / 12h is f'(0) up to h^4 f^(5) / 30 + 1.5 delta / h, delta being the rounding
// of f, below 1e-14 for losses below 10. Squared ReLU bends twice at 0, where a pre-activation
// within 2h of 0 adds an error of about h times its share. With h = 5e-5 these are about 1e-17,
// 3e-10 and, for the few such elements, 1e-8, against gradients of 1e-3 to 1.
#include <gtest/gtest.h>

#include "oracle/model/layout.h"
#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

using Weights = std::vector<std::vector<double>>;

Scenario small(const std::string& pattern) {
  Scenario scenario;
  Scenario::Model& model = scenario.model;
  model.pattern = pattern;
  model.hidden = 12;
  model.vocab = 11;
  model.attention = {4, 2, 6, 100.0};
  model.mamba = {24, 6, 2, 5, 3, 4};  // d_inner, head_dim, groups, state, conv_width, chunk
  model.mlp.hidden = 14;
  scenario.data.pack_length = 44;
  scenario.data.gaps = 1;
  return scenario;
}

// Documents at the edges of chunks: chunk - 1, chunk, chunk + 1, 2 chunk + 3; an empty one and one
// token.
const std::vector<std::int64_t> kLengths{3, 0, 4, 1, 5, 11};

// Far from the initial weights, so that nothing is nearly linear.
Weights weights_of(const Scenario& scenario) {
  Weights weights;
  Draws numbers(9);
  for (const ParameterLayout& parameter : make_layout(scenario.model).parameters) {
    const bool gain = parameter.start == Start::one, slow = parameter.start == Start::a_log;
    std::vector<double>& values = weights.emplace_back(parameter.rows * parameter.cols);
    for (double& value : values) value = (gain ? 1.0 : slow ? -0.5 : 0.0) + 0.45 * numbers.next();
  }
  return weights;
}

// The selection bias, where the experts' choice has one.
std::vector<std::vector<double>> bias_of(const Scenario& scenario) {
  auto bias = no_expert_bias<double>(scenario.model);
  Draws numbers(7);
  for (auto& layer : bias) {
    for (double& value : layer) value = 0.2 * numbers.next();
  }
  return bias;
}

DoubleResult run(const Scenario& scenario, const Microbatch& microbatch, const Weights& weights) {
  return run_in_double(scenario, microbatch, weights, 0, bias_of(scenario));
}

// The loss whose gradient is taken.
double whole_loss(const DoubleResult& result) {
  double loss = result.loss;
  for (const ExpertStatistics<double>& entry : result.experts)
    loss += entry.aux_loss + entry.z_loss;
  return loss;
}

double slope(const Scenario& scenario, const Microbatch& microbatch, const Weights& weights,
             std::size_t parameter, const std::vector<double>& direction) {
  const auto loss = [&](double distance) {
    Weights moved = weights;
    for (std::size_t e = 0; e < direction.size(); ++e)
      moved[parameter][e] += distance * direction[e];
    return whole_loss(run(scenario, microbatch, moved));
  };
  const double h = 5e-5;
  return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
}

// The largest difference between gradient and slope, relative to the gradient's length.
double worst_slope(const Scenario& scenario, const std::string& where) {
  const Microbatch microbatch = documents_of(kLengths, scenario.model.vocab, 3);
  const Weights weights = weights_of(scenario);
  const DoubleResult result = run(scenario, microbatch, weights);
  const Layout layout = make_layout(scenario.model);
  Draws numbers(4);
  double worst = 0;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    double length = 0;
    for (const double g : result.gradients[p]) length += g * g;
    length = std::sqrt(length);
    EXPECT_GT(length, 1e-4) << where << " " << layout.parameters[p].name << " has no gradient";
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<double> direction(weights[p].size());
      double want = 0;
      for (std::size_t e = 0; e < direction.size(); ++e) {
        direction[e] = numbers.next() < 0 ? -1 : 1;
        want += direction[e] * result.gradients[p][e];
      }
      const double error =
          std::abs(slope(scenario, microbatch, weights, p, direction) - want) / length;
      EXPECT_LE(error, 1e-7) << where << " " << layout.parameters[p].name;
      if (!(error <= worst)) worst = error;
    }
  }
  std::printf("%s: worst relative error %.1e\n", where.c_str(), worst);
  return worst;
}

TEST(backward, is_the_slope_of_an_attention_layer) {
  EXPECT_LE(worst_slope(small("*"), "*"), 1e-7);
}

TEST(backward, is_the_slope_of_attention_over_several_kv_blocks) {
  Scenario scenario = small("*");
  scenario.data.pack_length = 75;
  const Microbatch microbatch = documents_of({70}, scenario.model.vocab, 3);
  const Weights weights = weights_of(scenario);
  const DoubleResult result = run_in_double(scenario, microbatch, weights);
  std::vector<double> ones(weights[2].size(), 1.0);  // The QKV product.
  double want = 0;
  for (const double g : result.gradients[2]) want += g;
  const double got = slope(scenario, microbatch, weights, 2, ones);
  EXPECT_LE(std::abs(got - want), 1e-7 * std::abs(want));
}

TEST(backward, is_the_slope_of_a_scan_layer) { EXPECT_LE(worst_slope(small("M"), "M"), 1e-7); }

TEST(backward, is_the_slope_of_a_squared_relu) { EXPECT_LE(worst_slope(small("-"), "-"), 1e-7); }

TEST(backward, is_the_slope_of_a_swiglu) {
  Scenario scenario = small("-");
  scenario.model.mlp.activation = MlpActivation::swiglu;
  EXPECT_LE(worst_slope(scenario, "- swiglu"), 1e-7);
}

// Where no logits lie within about 1e-3 of a tie of keys the choice is constant, and the loss
// smooth but for it. A flip would be an error far above the bound.
Scenario of_experts(Router router, std::int64_t slots, bool drops) {
  Scenario scenario = small("E");
  Scenario::Model::Moe& moe = scenario.model.moe;
  moe.experts = 5;
  moe.top_k = slots;
  moe.hidden = 7;
  moe.router = router;
  moe.expert_bias = router == Router::sigmoid;
  moe.capacity_factor = std::nullopt;
  if (drops) moe.capacity_factor = Ratio{500'000};
  moe.pad_to_capacity = drops;
  scenario.model.mlp.activation = MlpActivation::swiglu;
  return scenario;
}

std::int64_t dropped_pairs(const Scenario& scenario) {
  const DoubleResult result =
      run(scenario, documents_of(kLengths, scenario.model.vocab, 3), weights_of(scenario));
  std::int64_t sum = 0;
  for (const std::int64_t n : result.experts.at(0).dropped) sum += n;
  return sum;
}

TEST(backward, is_the_slope_of_experts) {
  for (const Router router : {Router::softmax, Router::sigmoid}) {
    for (const std::int64_t slots : {1, 2, 3}) {
      for (const bool drops : {false, true}) {
        Scenario scenario = of_experts(router, slots, drops);
        EXPECT_EQ(dropped_pairs(scenario) > 0, drops);
        const std::string where =
            std::string(router == Router::softmax ? "E softmax, " : "E sigmoid, ") +
            std::to_string(slots) + (drops ? " slots, drops" : " slots");
        EXPECT_LE(worst_slope(scenario, where), 1e-7);
        scenario.model.moe.shared_hidden = 6;
        scenario.model.moe.aux_loss = Ratio{700'000};
        scenario.model.moe.z_loss = Ratio{300'000};
        EXPECT_LE(worst_slope(scenario, where + ", shared, losses"), 1e-7);
      }
    }
  }
}

TEST(backward, is_the_slope_of_experts_with_squared_relu_among_other_layers) {
  Scenario scenario = of_experts(Router::softmax, 2, true);
  scenario.model.pattern = "*EME";
  scenario.model.mlp.activation = MlpActivation::squared_relu;
  scenario.model.moe.aux_loss = Ratio{700'000};
  EXPECT_LE(worst_slope(scenario, "*EME"), 1e-7);
}

TEST(backward, is_the_slope_of_a_hybrid_with_tied_embedding_and_dropout) {
  Scenario scenario = small("M*-");
  EXPECT_LE(worst_slope(scenario, "M*-"), 1e-7);
  scenario.model.tied_embedding = true;
  scenario.model.dropout = Ratio{300'000};
  EXPECT_LE(worst_slope(scenario, "M*- tied, dropout"), 1e-7);
}

}  // namespace
}  // namespace lockstep::oracle
