// The runs that judge where the library adds up: what an eager run gave is kept as the oracle's
// results are.
#include "harness/judge/eager_reference.h"

#include <gtest/gtest.h>

#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

ReferenceResults reference_of(const Scenario& scenario, const DataSource& data) {
  const RunOptions options;
  ReferenceResults remembered;
  ComparedRun run(scenario, data, options, {}, Compared::result_only, nullptr);
  run.on_ranks([&](ComparedRun::Rank& rank) {
    EagerReference reference(scenario, rank);
    for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
      reference.step();
      if (rank.engine.trainer.evaluation_is_due()) reference.evaluate();
    }
    std::move(reference).remember(remembered);
  });
  return remembered;
}

ReferenceResults oracle_of(const Scenario& scenario, const DataSource& data) {
  ExpectedSteps oracle(data, make_oracle_judge(scenario, ""));
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    oracle.step(step);
    const std::int64_t every = scenario.training.eval_every;
    if (every > 0 && (step + 1) % every == 0) oracle.evaluation(step);
  }
  return std::move(oracle).remember();
}

void expect_equal(const oracle::StepResult& got, const oracle::StepResult& want, bool trained) {
  EXPECT_EQ(got.loss, want.loss);
  if (trained) {
    EXPECT_EQ(got.norm, want.norm);
    EXPECT_EQ(got.clip, want.clip);
    EXPECT_EQ(got.learning_rate, want.learning_rate);
  }
  ASSERT_EQ(got.microbatches.size(), want.microbatches.size());
  for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
    EXPECT_EQ(got.microbatches[m].loss, want.microbatches[m].loss);
    ASSERT_EQ(got.microbatches[m].experts.size(), want.microbatches[m].experts.size());
    for (std::size_t x = 0; x < want.microbatches[m].experts.size(); ++x) {
      EXPECT_EQ(got.microbatches[m].experts[x].layer, want.microbatches[m].experts[x].layer);
      EXPECT_EQ(got.microbatches[m].experts[x].aux_loss, want.microbatches[m].experts[x].aux_loss);
      EXPECT_EQ(got.microbatches[m].experts[x].z_loss, want.microbatches[m].experts[x].z_loss);
    }
  }
}

Scenario with_experts(std::int64_t ranks) {
  Scenario s;
  s.numerics = {Numerics::fp32};
  s.model.pattern = "*E-E";
  s.model.moe.router = Router::sigmoid;
  s.model.moe.expert_bias = true;
  s.model.moe.aux_loss = Ratio{10'000};
  s.model.moe.z_loss = Ratio{1'000};
  s.training.steps = 3;
  s.training.microbatches = 2;
  s.training.eval_every = 2;
  s.cuda_graph.modules = {GraphModule::attn};
  s.parallel.data = ranks;
  return s;
}

// Where the sums are in the stated order, an eager run and the oracle are two names of the same
// bits, whoever has which part of a parameter.
TEST(EagerReference, IsWhatTheOracleGivesWhereItKnows) {
  struct Run {
    std::int64_t ranks, stages;
    Sharding strategy;
  };
  const Run runs[] = {{1, 1, Sharding::no_shard}, {2, 1, Sharding::no_shard},
                      {3, 1, Sharding::optim},    {2, 1, Sharding::optim_grads_params},
                      {2, 2, Sharding::no_shard}, {1, 3, Sharding::optim_grads}};
  for (const auto& [ranks, stages, strategy] : runs) {
    Scenario s = eager(with_experts(ranks));
    s.parallel.pipeline = stages;
    if (stages > 1) s.training.in_flight = scheduled_depth(s);
    s.fsdp.strategy = strategy;
    ASSERT_TRUE(check_legality(s).empty());
    const auto data = open_data(s);
    const ReferenceResults got = reference_of(s, *data), want = oracle_of(s, *data);
    EXPECT_EQ(got.digest, want.digest);
    ASSERT_EQ(got.steps.size(), want.steps.size());
    for (std::size_t step = 0; step < want.steps.size(); ++step) {
      expect_equal(got.steps[step], want.steps[step], true);
      ASSERT_EQ(got.evaluations[step].has_value(), want.evaluations[step].has_value());
      if (want.evaluations[step])
        expect_equal(*got.evaluations[step], *want.evaluations[step], false);
    }
    EXPECT_EQ(got.expert_biases, want.expert_biases);
    ASSERT_EQ(got.parameters.size(), want.parameters.size());
    for (std::size_t p = 0; p < want.parameters.size(); ++p) {
      EXPECT_EQ(got.parameters[p].name, want.parameters[p].name);
      EXPECT_EQ(got.parameters[p].weight, want.parameters[p].weight);
      EXPECT_EQ(got.parameters[p].m, want.parameters[p].m);
      EXPECT_EQ(got.parameters[p].v, want.parameters[p].v);
    }
  }
}

TEST(EagerReference, IsItselfHeldAgainstTheOracleBeforeTheFirstSum) {
  const Scenario s = eager(with_experts(2));
  const auto data = open_data(s);
  ReferenceResults reference = reference_of(s, *data);
  EXPECT_EQ(first_losses_differ(s, *data, reference), "");
  reference.steps[0].microbatches[3].loss += 1;
  EXPECT_NE(first_losses_differ(s, *data, reference).find("the loss of microbatch 3"),
            std::string::npos);
}

// A sum of two terms has one rounding, whoever adds.
TEST(EagerReference, JudgesOnlyWhatTheOracleDoesNotKnow) {
  Scenario s = with_experts(2);
  EXPECT_TRUE(oracle_knows(s));
  s.fsdp.reduction = Reduction::nccl;
  EXPECT_TRUE(oracle_knows(s));
  s.fsdp.strategy = Sharding::optim_grads;
  EXPECT_FALSE(oracle_knows(s));
  s.training.microbatches = 1;
  EXPECT_TRUE(oracle_knows(s));
  s.parallel.data = 3;
  EXPECT_FALSE(oracle_knows(s));
  s.parallel.data = 1;
  EXPECT_TRUE(oracle_knows(s));
}

}  // namespace
}  // namespace lockstep
