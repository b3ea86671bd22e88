// The judge that is an eager run: where bits are modelled it says what the oracle says, whatever is
// planted.
#include "harness/judge/eager_judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "harness/case/schedules.h"
#include "harness/judge/eager_reference.h"
#include "kernels/core/contract.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

Scenario with_everything() {
  Scenario s;
  s.numerics = {Numerics::bf16};
  s.model.pattern = "M*-";
  s.model.core_attention = CoreAttention::cudnn;
  s.model.recompute = {Recompute::layernorm};
  s.data.documents = {{{20, 0, 30}, {1, 63}}, {{64}, {16, 15}}};
  s.training.steps = 2;
  s.training.eval_every = 1;
  return s;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_same_losses(const oracle::StepResult& got, const oracle::StepResult& want) {
  ASSERT_EQ(got.microbatches.size(), want.microbatches.size());
  for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
    EXPECT_EQ(got.microbatches[m].loss, want.microbatches[m].loss);
    ASSERT_EQ(got.microbatches[m].experts.size(), want.microbatches[m].experts.size());
    for (std::size_t x = 0; x < want.microbatches[m].experts.size(); ++x) {
      const auto &its = want.microbatches[m].experts[x], &mine = got.microbatches[m].experts[x];
      EXPECT_EQ(mine.layer, its.layer);
      EXPECT_EQ(mine.aux_loss, its.aux_loss);
      EXPECT_EQ(mine.z_loss, its.z_loss);
    }
  }
}

// How many pairs went where: in training passes alone.
void expect_same_counts(const oracle::StepResult& got, const oracle::StepResult& want) {
  for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
    for (std::size_t x = 0; x < want.microbatches[m].experts.size(); ++x) {
      const auto &its = want.microbatches[m].experts[x], &mine = got.microbatches[m].experts[x];
      EXPECT_EQ(mine.chosen, its.chosen) << "microbatch " << m << ", layer " << its.layer;
      EXPECT_EQ(mine.dropped, its.dropped) << "microbatch " << m << ", layer " << its.layer;
    }
  }
}

// Boundaries of unused slots repeat the last one; the oracle has those in use.
std::vector<float> for_capacity_of(const oracle::Tensor& tensor, const std::vector<float>& got) {
  std::vector<float> values = tensor.values;
  if (tensor.name.starts_with("pack.") && values.size() < got.size())
    values.resize(got.size(), values.back());
  return values;
}

void expect_same_activations(const oracle::StepResult& got, const oracle::StepResult& want) {
  expect_same_losses(got, want);
  for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
    const std::vector<oracle::Tensor>& list = got.microbatches[m].activations;
    EXPECT_FALSE(want.microbatches[m].activations.empty());
    for (const oracle::Tensor& tensor : want.microbatches[m].activations) {
      const auto found = std::find_if(list.begin(), list.end(), [&](const oracle::Tensor& one) {
        return one.name == tensor.name;
      });
      ASSERT_NE(found, list.end()) << tensor.name;
      EXPECT_TRUE(same(found->values, for_capacity_of(tensor, found->values))) << tensor.name;
    }
  }
}

// The gradient of a parameter after each backward pass: its own gradient, or the sum up to there.
void expect_same_gradients(const oracle::StepResult& got, const oracle::StepResult& want) {
  for (std::size_t p = 0; p < want.microbatches.front().gradients.size(); ++p) {
    std::vector<float> sum(want.microbatches.front().gradients[p].size());
    for (std::size_t m = 0; m < want.microbatches.size(); ++m) {
      ASSERT_EQ(got.microbatches[m].gradients.size(), want.microbatches[m].gradients.size()) << m;
      const std::vector<float>& own = want.microbatches[m].gradients[p];
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] = add(sum[e], own[e]);
      const std::vector<float>& shown = got.microbatches[m].gradients[p];
      EXPECT_TRUE(same(shown, own) || same(shown, sum))
          << "parameter " << p << ", microbatch " << m;
    }
  }
}

void expect_the_oracles_word(const Scenario& scenario) {
  const auto data = open_data(scenario);
  const auto oracle = make_oracle_judge(scenario, "");
  const auto eager = make_eager_judge(scenario, *data, "sim", 0);
  for (std::int64_t step = 0; step < scenario.training.steps; ++step) {
    const StepData documents = data->training(step);
    const oracle::StepResult want = oracle->step(step, documents),
                             got = eager->step(step, documents);
    expect_same_activations(got, want);
    expect_same_counts(got, want);
    expect_same_gradients(got, want);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.norm, want.norm);
    EXPECT_EQ(got.clip, want.clip);
    EXPECT_EQ(got.learning_rate, want.learning_rate);
    ASSERT_EQ(eager->parameters().size(), oracle->parameters().size());
    for (std::size_t p = 0; p < oracle->parameters().size(); ++p) {
      const oracle::Parameter &mine = eager->parameters()[p], &its = oracle->parameters()[p];
      EXPECT_EQ(mine.name, its.name);
      EXPECT_EQ(mine.rows, its.rows);
      EXPECT_EQ(mine.cols, its.cols);
      EXPECT_TRUE(same(mine.weight, its.weight) && same(mine.gradient, its.gradient)) << its.name;
      EXPECT_TRUE(same(mine.m, its.m) && same(mine.v, its.v)) << its.name;
    }
    EXPECT_EQ(eager->weight_digest(), oracle->weight_digest());
    ASSERT_EQ(eager->expert_bias().size(), oracle->expert_bias().size());
    for (std::size_t layer = 0; layer < oracle->expert_bias().size(); ++layer) {
      EXPECT_TRUE(same(eager->expert_bias()[layer], oracle->expert_bias()[layer])) << layer;
    }
    const StepData held_out = data->evaluation(step);
    const oracle::StepResult its = oracle->evaluate(step, held_out),
                             mine = eager->evaluate(step, held_out);
    EXPECT_EQ(mine.loss, its.loss);  // Nobody looks into an evaluation.
    expect_same_losses(mine, its);
  }
}

TEST(EagerJudge, SaysWhatTheOracleSays) { expect_the_oracles_word(with_everything()); }

TEST(EagerJudge, OfSeveralRanksIsOne) {
  Scenario s = with_everything();
  s.training.in_flight = 1;
  s.parallel.data = 2;
  s.fsdp.strategy = Sharding::optim_grads;
  expect_the_oracles_word(s);
}

// In buffers without padding, the rows that pairs fill.
TEST(EagerJudge, KnowsTheRowsOfExperts) {
  Scenario s = with_everything();
  s.model.pattern = "*E*E";
  s.model.moe.experts = 5;
  s.model.moe.shared_hidden = 16;
  s.model.moe.router = Router::sigmoid;
  s.model.moe.expert_bias = true;
  s.model.moe.aux_loss = s.model.moe.z_loss = {10'000};
  for (const bool drops : {false, true}) {
    s.model.moe.capacity_factor = drops ? std::optional(Ratio{500'000}) : std::nullopt;
    for (const bool pads : {false, true}) {
      s.model.moe.pad_to_capacity = pads && drops;
      expect_the_oracles_word(s);
    }
  }
}

TEST(EagerJudge, IsSoundWhateverIsPlanted) {
  for (const char* fault :
       {"attention-tables-built-once", "attention-tables-ignore-gaps", "learning-rate-baked"}) {
    plant_fault(fault);
    Scenario s = with_everything();
    s.data.gaps = 2;
    s.data.pack_length = 96;
    expect_the_oracles_word(s);
    EXPECT_EQ(planted_fault(), fault);
    plant_fault("");
  }
}

// A judge of one rank has one fold.
TEST(EagerJudge, SaysNoStepOfRanksThatFoldByThemselves) {
  Scenario s = with_everything();
  EXPECT_TRUE(has_judge_of_steps(s, "cuda"));
  s.parallel.data = 2;
  for (const Sharding strategy :
       {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    s.fsdp.strategy = strategy;
    EXPECT_EQ(has_judge_of_steps(s, "cuda"), strategy >= Sharding::optim_grads);
    EXPECT_TRUE(has_judge_of_steps(s, "sim"));
  }
}

TEST(EagerJudge, IsAskedOnAGpuAlone) {
  Scenario s = with_everything();
  EXPECT_TRUE(is_judged_by_an_eager_run(s, "cuda"));
  EXPECT_FALSE(is_judged_by_an_eager_run(s, "sim"));
  s.model.core_attention = CoreAttention::native;
  EXPECT_FALSE(is_judged_by_an_eager_run(s, "cuda"));
}

}  // namespace
}  // namespace lockstep
