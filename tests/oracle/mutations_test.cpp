// Every planted error changes bits that a comparison with the oracle looks at.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/oracle/cases.h"

namespace lockstep::oracle {
namespace {

// Loss, gradients of every microbatch and weights after three steps, as bits.
struct Outcome {
  std::vector<float> values;
  bool operator==(const Outcome& other) const { return same_bits(values, other.values); }
};

Outcome outcome(const Scenario& scenario, const std::string& mutation) {
  Options options;
  options.keep_activations = false;
  options.mutation = mutation;
  Oracle oracle(scenario, options);
  Outcome all;
  for (int s = 0; s < 3; ++s) {
    const StepData data = s == 1 ? step_of({{64}, {3, 4, 20, 15, 9}, {40, 2}}, scenario.model.vocab, 20)
                                 : step_of({{17, 1, 0, 30}, {5, 16, 33}}, scenario.model.vocab, 10 + s);
    const StepResult result = oracle.step(s, data);
    all.values.push_back(result.loss);
    for (const MicrobatchResult& microbatch : result.microbatches) {
      for (const std::vector<float>& g : microbatch.gradients) all.values.insert(all.values.end(), g.begin(), g.end());
    }
  }
  for (const Parameter& p : oracle.parameters()) all.values.insert(all.values.end(), p.weight.begin(), p.weight.end());
  return all;
}

std::vector<Scenario> scenarios() {
  std::vector<Scenario> list(3);
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

TEST(mutations, all_change_the_outcome) {
  const std::vector<Scenario> list = scenarios();
  std::vector<Outcome> right;
  for (const Scenario& scenario : list) right.push_back(outcome(scenario, ""));
  for (std::size_t k = 0; k < list.size(); ++k) EXPECT_TRUE(outcome(list[k], "") == right[k]);
  for (const std::string& name : Oracle::mutations()) {
    bool differs = false;
    for (std::size_t k = 0; k < list.size() && !differs; ++k) differs = !(outcome(list[k], name) == right[k]);
    EXPECT_TRUE(differs) << name << " changes nothing";
  }
}

}  // namespace
}  // namespace lockstep::oracle
