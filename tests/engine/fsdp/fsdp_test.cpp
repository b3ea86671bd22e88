// Sharding changes no bits where arithmetic.md says so, and the folds of its strategies where it
// says how.
#include <gtest/gtest.h>

#include <string_view>

#include "kernels/core/fault.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

constexpr Sharding kStrategies[] = {Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                    Sharding::optim_grads_params};

Scenario hybrid(Numerics numerics = Numerics::fp32) {
  Scenario s;
  s.name = "test";
  s.numerics = {numerics};
  s.model.pattern = "M*-M*-M";
  s.model.dropout = {100'000};
  s.training.steps = 3;
  s.training.eval_every = 2;
  s.cuda_graph.impl = GraphImpl::none;
  return s;
}

TEST(Fsdp, OneRankWithAnyStrategyHasTheBitsOfOneWithout) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    Scenario s = hybrid(numerics);
    const auto data = open_data(s);
    const Outcome want = run(s, *data);
    for (const Sharding strategy : kStrategies) {
      for (const bool double_buffer : {true, false}) {
        s.fsdp.strategy = strategy;
        s.fsdp.double_buffer = double_buffer;
        const Outcome got = run_whole(s, *data);
        EXPECT_EQ(difference(got, want), "") << "strategy " << static_cast<int>(strategy);
        EXPECT_EQ(got.counters.at(Counter::collectives) > 0, strategy != Sharding::no_shard);
      }
    }
  }
}

// The same microbatches in the same global order: one left fold, whoever ran them.
TEST(Fsdp, ShardedGradientsHaveTheSameBitsOnAnyNumberOfRanks) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    Scenario s = hybrid(numerics);
    s.training.microbatches = 6;
    const auto data = open_data(s);
    const Outcome want = run(s, *data);
    for (const Sharding strategy : {Sharding::optim_grads, Sharding::optim_grads_params}) {
      for (const int ranks : {1, 2, 3}) {
        s.fsdp.strategy = strategy;
        s.parallel.data = ranks;
        s.training.microbatches = 6 / ranks;
        s.training.in_flight = ranks == 3 ? 2 : 1;
        const Outcome got = run_whole(s, *data);
        EXPECT_EQ(difference(got, want), "")
            << "strategy " << static_cast<int>(strategy) << " on " << ranks;
      }
    }
  }
}

// Each rank folds its own microbatches from +0, and these folds are added in order of ranks.
TEST(Fsdp, WholeGradientsAreTheFoldOfTheRanksFolds) {
  Scenario s = hybrid();
  s.training.steps = 1;
  s.parallel.data = 3;
  const auto data = open_data(s);
  const StepData step = data->training(0);
  Values want;
  for (int r = 0; r < 3; ++r) {
    Scenario alone = s;
    alone.parallel.data = 1;
    StepData part{.microbatches = {}, .targets = step.targets};
    for (int m = 0; m < 2; ++m)
      part.microbatches.push_back(step.microbatches[static_cast<std::size_t>(m * 3 + r)]);
    const Values fold = run(alone, FixedData({part})).gradients[0];
    for (std::size_t p = 0; p < fold.size(); ++p) {
      if (r == 0) want.push_back(fold[p]);
      for (std::size_t e = 0; r > 0 && e < fold[p].size(); ++e)
        want[p][e] = add(want[p][e], fold[p][e]);
    }
  }
  for (const Sharding strategy : {Sharding::no_shard, Sharding::optim}) {
    s.fsdp.strategy = strategy;
    const Outcome got = run_whole(s, *data);
    EXPECT_TRUE(same_bits(got.gradients[0], want)) << static_cast<int>(strategy);
  }
}

// Copies of a step between its last reduction and the norm.
class CopiesOfTheNorm final : public Observer {
 public:
  void on_call(const IssuedCall& issued) override {
    const auto* copy = issued.as<CopyCall>();
    copies += copy && copy->kind == CopyKind::device_to_device && issued.place.part != nullptr &&
              std::string_view(issued.place.part) == "gradient_norm";
  }
  int copies = 0;
};

// Compute waits for each, and nothing hides them: the rows of all layers are put in order at once.
// A rank by itself sends its row sums and its losses.
TEST(Fsdp, TheRowsOfTheNormAreNotCopiedOneRunAfterTheOther) {
  for (const char* pattern : {"M*", "M*-M*-M*-M*-"}) {
    Scenario s = hybrid(Numerics::bf16);
    s.model.pattern = pattern;
    s.fsdp.strategy = Sharding::optim_grads_params;
    const auto data = open_data(s);
    CopiesOfTheNorm observer;
    Device device(open_device_under_test(), &observer);
    Trainer trainer(device, s, *data, {});
    trainer.step();
    EXPECT_EQ(observer.copies, 2) << pattern;
  }
}

}  // namespace
}  // namespace lockstep::test
