#include "harness/judge/comparison.h"

#include <gtest/gtest.h>

#include <limits>

#include "harness/judge/runner.h"
#include "harness/judge/seen_difference.h"
#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

constexpr int kRows = 8;
constexpr int kCols = 2;

std::vector<std::vector<float>> read_all(std::span<const StoredValues> list) {
  std::vector<std::vector<float>> read;
  for (const StoredValues& t : list) {
    const float* first = static_cast<const float*>(t.data);
    read.emplace_back(first, first + t.rows * t.cols);
  }
  return read;
}

// One parameterised step of two microbatches that agrees with itself; tests change one side.
class ComparisonTest : public testing::Test {
 protected:
  ComparisonTest() {
    scenario_.data.pack_length = kRows;
    scenario_.data.gaps = 1;
    data_.microbatches.resize(2);
    // Rows: 0..1 document 4, row 2 its gap, document 5 is empty, rows 3..5 document 6, the rest
    // padding.
    data_.microbatches[1].documents = {document(4, 2), document(5, 0), document(6, 3)};
    for (int m = 0; m < 2; ++m) {
      oracle::MicrobatchResult result;
      result.loss = 1.5f;
      for (const char* name : {"embedding.out", "layers.0.out"})
        result.activations.push_back(activation(name, kCols));
      result.activations.push_back({"token_loss", -1, 1, kRows, std::vector<float>(kRows, 0.25f)});
      result.gradients = {{1, 2}, {3, 4}};
      result.experts = {
          {.layer = 2, .aux_loss = 0.125f, .z_loss = 0.5f, .chosen = {3, 1}, .dropped = {1, 0}}};
      want_.microbatches.push_back(result);
    }
    want_.loss = 3;
    for (const char* name : {"embedding.weight", "head.weight"}) {
      after_.push_back({name, -1, 1, 2, false, {1, 2}, {3, 4}, {5, 6}, {7, 8}});
    }
    engine_ = want_;
    engine_after_ = after_;
    biases_ = engine_biases_ = {{}, {}, {0.5f, 0.25f}};
  }

  static Document document(int number, int length) {
    Document one;
    one.number = number;
    one.tokens.assign(length, 1);
    one.targets.assign(length, 1);
    return one;
  }
  static oracle::Tensor activation(const char* name, int cols) {
    return {name, 0, kRows, cols, std::vector<float>(kRows * cols, 0.5f)};
  }
  static Tensor<float> view(std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
    return tensor(values.data(), rows, cols);
  }

  // The calls that the engine would make in a step with both microbatches in flight.
  std::optional<Difference> run() {
    Comparison whole(scenario_);
    std::vector<ParameterView> parameters;
    for (std::size_t i = 0; i < engine_after_.size(); ++i) {
      oracle::Parameter& p = engine_after_[i];
      parameters.push_back(
          {.name = p.name,
           .layer = p.layer,
           .index = static_cast<int>(i),
           .weight = view(p.weight, 1, 2),
           .gradient = view(p.gradient, 1, 2),
           .m = view(p.m, 1, 2),
           .v = view(p.v, 1, 2),
           .microbatch_gradient = view(engine_.microbatches[0].gradients[i], 1, 2)});
    }
    const ComparedEngine engine{read_all, parameters};
    StepComparison& comparison = whole.begin(engine, {7, data_, want_, after_});
    StepResult result;
    result.tokens = tokens_;
    result.loss = engine_.loss;
    result.norm = engine_.norm;
    result.clip = engine_.clip;
    result.learning_rate = engine_.learning_rate;
    result.router_losses = folded_;
    for (int m = 0; m < 2; ++m) {
      oracle::MicrobatchResult& microbatch = engine_.microbatches[m];
      std::vector<NamedTensor> activations;
      for (oracle::Tensor& t : microbatch.activations) {
        activations.push_back({t.name, t.layer, "an_op", view(t.values, t.rows, t.cols)});
        if (t.name == ragged_) activations.back().rows = NamedTensor::Rows::ragged_buffer;
      }
      result.microbatch_router_losses.emplace_back();
      for (const auto& layer : microbatch.experts) {
        result.microbatch_router_losses.back().push_back({layer.aux_loss, layer.z_loss});
      }
      comparison.forward_done(m, activations, live_);
      result.microbatch_losses.push_back(microbatch.loss);
    }
    for (int m = 0; m < 2; ++m) {
      std::vector<std::vector<float>> sums(parameters.size());
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].microbatch_gradient = view(engine_.microbatches[m].gradients[i], 1, 2);
        if (!accumulates_) continue;
        sums[i] = engine_.microbatches[0].gradients[i];
        for (std::size_t e = 0; m == 1 && e < sums[i].size(); ++e)
          sums[i][e] += engine_.microbatches[1].gradients[i][e];
        parameters[i].microbatch_gradient = {};
        parameters[i].gradient = view(sums[i], 1, 2);
      }
      comparison.backward_done(m, {}, live_);
      for (std::size_t i = 0; i < parameters.size(); ++i)
        parameters[i].gradient = view(engine_after_[i].gradient, 1, 2);
    }
    if (shows_gradients_) comparison.gradients_done();
    comparison.step_done();
    comparison.finish_step(result, Compared::every_pass);
    comparison.compare_weights(after_);
    std::vector<ExpertBiasView> views;
    for (std::vector<float>& bias : engine_biases_) {
      if (!bias.empty()) views.push_back({2, view(bias, 1, 2)});
    }
    comparison.compare_biases(views, biases_);
    return whole.found().first();
  }

  // The calls of an evaluation on the same documents, which shows the tensors but `hidden`.
  std::optional<Difference> evaluate(const std::string& hidden = "") {
    Comparison whole(scenario_);
    const std::vector<ParameterView> parameters;
    const std::vector<oracle::Parameter> no_change;
    const ComparedEngine engine{read_all, parameters};
    StepComparison& comparison = whole.begin(engine, {7, data_, want_, no_change});
    StepResult result;
    result.tokens = tokens_;
    result.loss = engine_.loss;
    result.router_losses = folded_;
    for (int m = 0; m < 2; ++m) {
      oracle::MicrobatchResult& microbatch = engine_.microbatches[m];
      std::vector<NamedTensor> activations;
      for (oracle::Tensor& t : microbatch.activations) {
        if (t.name != hidden)
          activations.push_back({t.name, t.layer, "an_op", view(t.values, t.rows, t.cols)});
      }
      result.microbatch_router_losses.emplace_back();
      for (const auto& layer : microbatch.experts)
        result.microbatch_router_losses.back().push_back({layer.aux_loss, layer.z_loss});
      comparison.evaluation_pass_done(m, activations);
      result.microbatch_losses.push_back(microbatch.loss);
    }
    comparison.finish_evaluation(result, Compared::every_pass);
    return whole.found().first();
  }

  Scenario scenario_;
  StepData data_;
  std::int64_t tokens_ = 5;  // As the engine counts them.
  oracle::StepResult want_, engine_;
  std::vector<oracle::Parameter> after_, engine_after_;
  std::vector<std::vector<float>> biases_, engine_biases_;
  std::string ragged_;
  RouterLosses folded_{0.25f, 1};
  bool live_ = true, shows_gradients_ = true, accumulates_ = false;
};

TEST_F(ComparisonTest, EqualBitsHold) { EXPECT_FALSE(run().has_value()); }

// Without a place of its own, a microbatch's gradient shows in the sum so far.
TEST_F(ComparisonTest, AGradientThatWasAccumulatedAtOnceIsJudgedByTheSum) {
  accumulates_ = true;
  EXPECT_FALSE(run().has_value());
  engine_.microbatches[1].gradients[0][1] += 0.25f;
  const auto found = run();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->judge, JudgeKind::gradient);
  EXPECT_EQ(found->where.microbatch, 1);
  EXPECT_EQ(found->where.index, 1);
}

TEST_F(ComparisonTest, TokensAreThoseOfTheDocuments) {
  tokens_ = 4;
  const auto found = run();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->judge, JudgeKind::vacuous);
  EXPECT_EQ(found->reason, "the engine counts 4 tokens in documents of 5");
}

TEST_F(ComparisonTest, NamesDocumentAndPosition) {
  engine_.microbatches[1].activations[1].values[4 * kCols + 1] = 0.75f;
  const auto found = run();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->judge, JudgeKind::activation);
  EXPECT_EQ(found->where.step, 7);
  EXPECT_EQ(found->where.microbatch, 1);
  EXPECT_EQ(found->where.tensor, "layers.0.out");
  EXPECT_EQ(found->where.op, "an_op");
  EXPECT_EQ(found->where.index, 9);
  EXPECT_EQ(found->where.row, 4);
  EXPECT_EQ(found->where.column, 1);
  EXPECT_EQ(found->where.document, 6);
  EXPECT_EQ(found->where.position, 1);
  EXPECT_EQ(found->where.got, "0.75 0x3f400000");
  EXPECT_EQ(found->where.want, "0.5 0x3f000000");
  EXPECT_EQ(found->where.ulp, 1 << 22);
}

TEST_F(ComparisonTest, APaddingRowBelongsToNoDocument) {
  engine_.microbatches[1].activations[0].values[2 * kCols] = 1;
  const auto found = run();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->where.row, 2);
  EXPECT_EQ(found->where.document, -1);
}

TEST_F(ComparisonTest, OneValueARowIsPlacedByItsColumn) {
  engine_.microbatches[1].activations[2].values[1] = 1;
  const auto found = run();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->where.document, 4);
  EXPECT_EQ(found->where.position, 1);
}

TEST_F(ComparisonTest, TheFirstInProgramOrderWins) {
  engine_after_[0].weight[0] = 9;
  engine_.norm = 4;
  EXPECT_EQ(run()->where.tensor, "norm");
  engine_after_[1].gradient[1] = 9;
  EXPECT_EQ(run()->where.tensor, "head.weight.gradient");
  EXPECT_EQ(run()->where.microbatch, -1);
  engine_.microbatches[1].gradients[0][0] = 9;
  EXPECT_EQ(run()->where.microbatch, 1);
  engine_.microbatches[1].loss = 9;
  EXPECT_EQ(run()->judge, JudgeKind::loss);
  engine_.microbatches[1].activations[1].values[0] = 9;
  EXPECT_EQ(run()->where.tensor, "layers.0.out");
  engine_.microbatches[1].activations[0].values[15] = 9;
  EXPECT_EQ(run()->where.tensor, "embedding.out");
  engine_.microbatches[0].loss = 9;
  EXPECT_EQ(run()->where.microbatch, 0);
  EXPECT_EQ(run()->judge, JudgeKind::loss);
}

// A run that dies before its end tells what had differed by then.
TEST_F(ComparisonTest, WhatDiffersIsSeenAtOnce) {
  forget_seen_difference();
  run();
  EXPECT_STREQ(seen_difference(), "");
  engine_.microbatches[1].activations[1].values[0] = 9;
  engine_.norm = 4;
  run();
  EXPECT_STREQ(seen_difference(), "layers.0.out differs from the oracle's in step 7 on rank 0");
  forget_seen_difference();
  EXPECT_STREQ(seen_difference(), "");
}

// The activations of an evaluation are compared before the loss that follows from them.
TEST_F(ComparisonTest, AnEvaluationNamesItsFirstActivation) {
  EXPECT_FALSE(evaluate().has_value());
  EXPECT_FALSE(evaluate("layers.0.out").has_value());
  engine_.microbatches[1].loss = 9;
  EXPECT_EQ(evaluate()->where.tensor, "loss");
  engine_.microbatches[1].activations[1].values[0] = 9;
  const Difference first = *evaluate();
  EXPECT_EQ(first.judge, JudgeKind::evaluation);
  EXPECT_EQ(first.where.tensor, "layers.0.out");
  EXPECT_EQ(first.where.microbatch, 1);
  EXPECT_EQ(first.where.op, "an_op");
  EXPECT_EQ(evaluate("layers.0.out")->where.tensor, "loss");
}

TEST_F(ComparisonTest, GradientsAreJudgedInBackwardOrder) {
  engine_.microbatches[0].gradients[0][0] = 9;
  EXPECT_EQ(run()->where.tensor, "embedding.weight.gradient");
  engine_.microbatches[0].gradients[1][1] = 9;
  EXPECT_EQ(run()->where.tensor, "head.weight.gradient");
}

TEST_F(ComparisonTest, EveryPartOfTheStateIsJudged) {
  const auto base = engine_after_;
  for (auto member : {&oracle::Parameter::m, &oracle::Parameter::v, &oracle::Parameter::weight}) {
    engine_after_ = base;
    (engine_after_[1].*member)[1] = 9;
    const auto found = run();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->judge, JudgeKind::weights);
    EXPECT_EQ(found->where.index, 1);
  }
}

TEST_F(ComparisonTest, AMissingTensorIsAViolationOnEitherSide) {
  engine_.microbatches[0].activations.pop_back();
  EXPECT_EQ(run()->reason, "token_loss is missing in the engine");
  EXPECT_EQ(run()->where.got, "missing");
  engine_ = want_;
  engine_.microbatches[1].activations.push_back(activation("layers.0.extra", kCols));
  EXPECT_EQ(run()->reason, "layers.0.extra is missing in the oracle");
}

TEST_F(ComparisonTest, AnotherShapeIsAViolation) {
  engine_.microbatches[0].activations[0] = activation("embedding.out", kCols + 1);
  EXPECT_EQ(run()->reason, "embedding.out has another shape");
}

TEST_F(ComparisonTest, RouterLossesAreJudged) {
  folded_.z = 2;
  EXPECT_EQ(run()->where.tensor, "z_loss");
  EXPECT_EQ(run()->where.microbatch, -1);
  engine_.microbatches[1].experts[0].z_loss = 0.75f;
  EXPECT_EQ(run()->where.tensor, "layers.2.z_loss");
  EXPECT_EQ(run()->where.microbatch, 1);
  engine_.microbatches[1].experts[0].aux_loss = 0.75f;
  EXPECT_EQ(run()->where.tensor, "layers.2.aux_loss");
  EXPECT_EQ(run()->judge, JudgeKind::loss);
  engine_.microbatches[0].experts.clear();
  EXPECT_EQ(run()->reason, "router losses is missing in the engine");
}

TEST_F(ComparisonTest, BiasesAreJudged) {
  engine_biases_[2][1] = 1;
  EXPECT_EQ(run()->where.tensor, "layers.2.router.expert_bias");
  EXPECT_EQ(run()->where.index, 1);
  engine_biases_[2].clear();
  EXPECT_EQ(run()->where.got, "missing");
  engine_biases_ = {{}, {}, {0.5f, 0.25f}};
  biases_[2].clear();
  EXPECT_EQ(run()->where.want, "missing");
}

// Rows that no pair uses are not looked at, and a row of the buffer is none of the pack.
TEST_F(ComparisonTest, OfARaggedBufferTheRowsInUseAreJudged) {
  ragged_ = "layers.0.out";
  for (oracle::MicrobatchResult& microbatch : want_.microbatches) {
    microbatch.activations[1].rows = 3;
    microbatch.activations[1].values.resize(3 * kCols);
  }
  engine_.microbatches[1].activations[1].values[3 * kCols] =
      std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(run().has_value());
  engine_.microbatches[1].activations[1].values[2 * kCols] = 9;
  EXPECT_EQ(run()->where.row, 2);
  EXPECT_EQ(run()->where.document, -1);
  want_.microbatches[1].activations[1].rows = kRows + 1;
  want_.microbatches[1].activations[1].values.resize((kRows + 1) * kCols);
  EXPECT_EQ(run()->reason, "layers.0.out has another shape");
}

TEST_F(ComparisonTest, NanOnBothSidesIsAViolation) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  engine_.microbatches[0].loss = want_.microbatches[0].loss = nan;
  const auto found = run();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->reason, "loss holds a NaN");
  EXPECT_EQ(found->where.ulp, std::nullopt);
}

TEST_F(ComparisonTest, AJudgeThatWasNotCalledIsVacuous) {
  shows_gradients_ = false;
  ASSERT_TRUE(run());
  EXPECT_EQ(run()->judge, JudgeKind::vacuous);
}

// An eager run that judges over processes knows the parameters of its own stage alone.
TEST_F(ComparisonTest, AParameterOfAnotherProcessIsNotMissing) {
  engine_after_ = after_;
  after_.emplace_back();
  EXPECT_FALSE(run().has_value());
  after_.back().name = "norm.weight";
  ASSERT_TRUE(run());
  EXPECT_EQ(run()->judge, JudgeKind::weights);
  EXPECT_EQ(run()->reason, "norm.weight is missing in the engine");
}

// A rank of a sharded run sees its own microbatches and holds some rows; reports name them as of
// the whole.
class SharedStep : public testing::Test {
 protected:
  SharedStep() {
    scenario_.data.pack_length = kRows;
    scenario_.fsdp.strategy = Sharding::optim_grads;
    scenario_.parallel.data = 2;
    for (const float loss : {1.0f, 2.0f, 3.0f, 4.0f})
      want_.microbatches.push_back({loss, {}, {{1, 2, 3, 4, 5, 6}}, {}});
    want_.loss = 10;
    after_ = {
        {"embedding.weight", -1, 3, 2, false, {1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}, {}, {}}};
    after_[0].m = after_[0].v = after_[0].weight;
    mine_ = after_[0];
    data_.microbatches.resize(4);
    losses_ = {2, 4};
  }

  // Rank 1 holds the last row.
  std::optional<Difference> run() {
    Comparison whole(scenario_, 1);
    const auto row = [](std::vector<float>& values) { return tensor(values.data() + 4, 1, 2); };
    const std::vector<ParameterView> views{{.name = "embedding.weight",
                                            .weight = row(mine_.weight),
                                            .gradient = row(mine_.gradient),
                                            .m = row(mine_.m),
                                            .v = row(mine_.v),
                                            .microbatch_gradient = {},
                                            .first = first_,
                                            .full_rows = 3,
                                            .full_cols = 2}};
    const ComparedEngine engine{read_all, views};
    StepComparison& comparison = whole.begin(engine, {0, data_, want_, after_});
    for (const int m : {0, 1}) comparison.forward_done(m, {}, true);
    for (const int m : {0, 1}) comparison.backward_done(m, {}, true);
    comparison.gradients_done();
    comparison.step_done();
    StepResult result;
    result.loss = 10;
    result.microbatch_losses = losses_;
    result.clip = want_.clip;
    comparison.finish_step(result, Compared::every_pass);
    comparison.compare_weights(after_);
    return whole.found().first();
  }

  Scenario scenario_;
  StepData data_;
  oracle::StepResult want_;
  std::vector<oracle::Parameter> after_;
  oracle::Parameter mine_;
  std::vector<float> losses_;
  std::int64_t first_ = 4;
};

TEST_F(SharedStep, EqualBitsHold) { EXPECT_FALSE(run().has_value()); }

TEST_F(SharedStep, LossesAreThoseOfTheRanksMicrobatches) {
  losses_ = {1, 2};
  ASSERT_TRUE(run());
  EXPECT_EQ(run()->judge, JudgeKind::loss);
  EXPECT_EQ(run()->where.rank, 1);
  EXPECT_EQ(run()->where.microbatch, 0);
  EXPECT_EQ(run()->where.want, "2 0x40000000");
}

TEST_F(SharedStep, AnElementIsNamedInTheWhole) {
  mine_.gradient[5] = 0;
  const auto found = run();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->judge, JudgeKind::gradient);
  EXPECT_EQ(found->where.rank, 1);
  EXPECT_EQ(found->where.index, 5);
  EXPECT_EQ(found->where.row, 2);
  EXPECT_EQ(found->where.column, 1);
  EXPECT_EQ(found->where.want, "12 0x41400000");
}

TEST_F(SharedStep, AnotherRanksRowsAreADifference) {
  first_ = 2;
  EXPECT_EQ(run()->where.index, 2);
  first_ = 5;
  EXPECT_EQ(run()->reason, "embedding.weight.gradient is no part of the oracle's");
  first_ = 6;
  EXPECT_EQ(run()->reason, "embedding.weight.gradient is no part of the oracle's");
}

TEST_F(SharedStep, MomentsAndWeightsAreJudgedByTheirRows) {
  mine_.v[4] = 9;
  EXPECT_EQ(run()->where.tensor, "embedding.weight.v");
  mine_.weight[0] = 9;  // A row of another rank.
  mine_.v[4] = after_[0].v[4];
  EXPECT_FALSE(run().has_value());
}

TEST_F(ComparisonTest, TensorsThatAreGoneAreNotRead) {
  live_ = false;
  engine_.microbatches[0].activations[0].values[0] = 9;
  EXPECT_FALSE(run().has_value());
}

// Codes of an Inf are finite, so that the amax alone tells. No rank shows it of experts over ranks.
TEST(AmaxesOfExperts, OfAnInfAreAViolation) {
  Scenario s;
  s.name = "inf";
  s.numerics = {Numerics::fp8};
  s.model.pattern = "E";
  s.model.hidden = 32;
  s.model.moe.capacity_factor.reset();
  s.model.moe.pad_to_capacity = false;
  s.training.steps = 2;
  s.training.optimizer.lr = 1e18;
  s.training.optimizer.clip = 0;
  s.cuda_graph.impl = GraphImpl::none;
  s.parallel.data = 2;
  for (const std::int64_t ranks : {1, 2}) {
    s.parallel.expert = ranks;
    ASSERT_TRUE(check_legality(s).empty());
    const CaseResult result = judge_case(s, {});
    EXPECT_EQ(result.verdict, Verdict::violated);
    EXPECT_EQ(result.reason, "layers.0.expert_fc2.x_amax holds an Inf") << ranks;
  }
}

}  // namespace
}  // namespace lockstep
