// Every planted error changes bits that a comparison with the oracle looks at.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

// Losses, gradients of every microbatch, and weights and expert biases after three steps, as bits.
struct Outcome {
  std::vector<float> values;
  bool operator==(const Outcome& other) const { return same_bits(values, other.values); }
};

StepData documents(const Scenario& scenario, int step) {
  const std::int64_t vocab = scenario.model.vocab;
  if (scenario.data.pack_length > 64) return step_of({{150, 1, 30}, {40, 129}}, vocab, 30 + step);
  return step == 1 ? step_of({{64}, {3, 4, 20, 15, 9}, {40, 2}}, vocab, 20)
                   : step_of({{17, 1, 0, 30}, {5, 16, 33}}, vocab, 10 + step);
}

Outcome outcome(const Scenario& scenario, Numerics numerics, const std::string& mutation) {
  Options options;
  options.numerics = numerics;
  options.keep_activations = false;
  options.mutation = mutation;
  Oracle oracle(scenario, options);
  Outcome all;
  for (int s = 0; s < 3; ++s) {
    const StepData data = documents(scenario, s);
    const StepResult result = oracle.step(s, data);
    all.values.push_back(result.loss);
    for (const MicrobatchResult& microbatch : result.microbatches) {
      for (const auto& entry : microbatch.experts) {
        all.values.insert(all.values.end(), {entry.aux_loss, entry.z_loss});
      }
      for (const std::vector<float>& g : microbatch.gradients)
        all.values.insert(all.values.end(), g.begin(), g.end());
    }
  }
  for (const auto& bias : oracle.expert_bias())
    all.values.insert(all.values.end(), bias.begin(), bias.end());
  for (const Parameter& p : oracle.parameters())
    all.values.insert(all.values.end(), p.weight.begin(), p.weight.end());
  return all;
}

std::vector<Scenario> scenarios() {
  std::vector<Scenario> list(7);
  Scenario& rich = list[1];
  rich.model.pattern = "M-M*-";
  rich.model.attention.heads = 4;
  rich.model.attention.kv_heads = 2;
  rich.model.mamba.groups = 2;
  rich.model.dropout = Ratio{200'000};
  rich.model.tied_embedding = true;
  rich.training.optimizer.schedule = LrSchedule::cosine;
  rich.training.optimizer.lr_warmup = 2;
  list[2].model.pattern = "*-";
  list[2].model.mlp.activation = MlpActivation::swiglu;
  // More than a kv block of bf16, and words that come back often.
  Scenario& longer = list[3];
  longer.model.pattern = "*";
  longer.model.vocab = 8;
  longer.model.attention.heads = 4;
  longer.model.attention.kv_heads = 1;
  longer.data.pack_length = 192;
  // Experts that drop rows, and padding rows; slots that weigh what their scores do; scores that
  // saturate to ties.
  for (std::size_t k = 4; k < 7; ++k) {
    list[k].model.pattern = "E";
    list[k].model.moe.experts = 5;
    list[k].model.moe.hidden = 16;
    list[k].model.moe.capacity_factor = Ratio{900'000};
    list[k].model.moe.aux_loss = Ratio{100'000};
    list[k].model.moe.z_loss = Ratio{10'000};
  }
  list[4].model.moe.top_k = 3;
  list[4].model.moe.shared_hidden = 16;
  list[4].model.mlp.activation = MlpActivation::swiglu;
  list[5].model.moe.router = list[6].model.moe.router = Router::sigmoid;
  list[5].model.moe.expert_bias = true;
  list[5].model.moe.experts = 16;
  list[5].model.moe.top_k = 4;
  list[5].model.moe.capacity_factor = Ratio{500'000};
  list[6].training.optimizer.lr = 10;
  return list;
}

TEST(mutations, have_names_of_their_own) {
  const std::vector<std::string> names = Oracle::mutations();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_GE(names.size(), 40u);
  Options unknown;
  unknown.mutation = "no-such-error";
  EXPECT_THROW(Oracle(Scenario(), unknown), std::invalid_argument);
}

void expect_all_change_the_outcome(Numerics numerics, const std::set<std::string>& hidden) {
  const std::vector<Scenario> list = scenarios();
  std::vector<Outcome> right;
  for (const Scenario& scenario : list) right.push_back(outcome(scenario, numerics, ""));
  for (std::size_t k = 0; k < list.size(); ++k)
    EXPECT_TRUE(outcome(list[k], numerics, "") == right[k]);
  for (const std::string& name : Oracle::mutations()) {
    if (name.starts_with("fp8-")) continue;  // The last test has these.
    bool differs = false;
    for (std::size_t k = name.starts_with("moe-") ? 4 : 0; k < list.size() && !differs; ++k) {
      differs = !(outcome(list[k], numerics, name) == right[k]);
    }
    EXPECT_TRUE(differs || hidden.count(name) != 0) << name << " changes nothing";
  }
}

TEST(mutations, all_change_the_outcome) {
  // The first is about tensor cores, the second about copies that fp32 numerics does not have.
  expect_all_change_the_outcome(Numerics::fp32, {"moe-groups-of-rows-count-from-the-buffer",
                                                 "moe-router-reads-the-bf16-copy"});
}

// A division instead of a multiplication, or another order of a few terms, moves the last bit of an
// fp32 number, and the store keeps 16 bits fewer: some 10^5 numbers would have to be looked at for
// one that differs.
TEST(mutations, all_change_the_outcome_in_bf16) {
  expect_all_change_the_outcome(Numerics::bf16,
                                {"loss-gradient-is-divided", "moe-combine-takes-slots-downwards"});
}

TEST(mutations, of_fp8_change_its_outcome) {
  Scenario scenario;
  scenario.model.pattern = "E";
  scenario.model.moe.experts = 3;
  const Outcome right = outcome(scenario, Numerics::fp8, "");
  for (const std::string& name : Oracle::mutations()) {
    if (!name.starts_with("fp8-")) continue;
    EXPECT_FALSE(outcome(scenario, Numerics::fp8, name) == right) << name << " changes nothing";
  }
}

}  // namespace
}  // namespace lockstep::oracle
