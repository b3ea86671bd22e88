// Sharding changes no bits where arithmetic.md says so, and the folds of its strategies where it says how.
#include <gtest/gtest.h>

#include "kernels/fault.h"
#include "tests/engine/sharded_run.h"

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
        EXPECT_EQ(got.counters.at("collectives") > 0, strategy != Sharding::no_shard);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::test
