// Passes of a capture (cuda_graph.capture_passes): a run is as it would have been without them.
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

Scenario base(const std::string& pattern = "M*E*-E") {
  Scenario s;
  s.name = "test";
  s.model.pattern = pattern;
  s.model.dropout = {100'000};
  s.model.moe.router = Router::sigmoid;
  s.model.moe.expert_bias = true;
  s.model.moe.aux_loss = {10'000};
  s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba, GraphModule::moe_router,
                          GraphModule::moe_preprocess};
  s.training.steps = 4;
  s.training.microbatches = 3;
  s.training.in_flight = 2;
  s.training.recapture_at = {3};
  return s;
}

TEST(CapturePasses, ChangeNothingOfARun) {
  for (const Numerics numerics : {Numerics::fp32, Numerics::bf16}) {
    for (const Sharding strategy : {Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                    Sharding::optim_grads_params}) {
      Scenario s = base();
      s.numerics = {numerics};
      s.fsdp.strategy = strategy;
      s.fsdp.unit = {2};
      const auto data = open_data(s);
      const Outcome want = run(s, *data);
      s.cuda_graph.capture_passes = 2;
      Outcome found = run(s, *data);
      EXPECT_EQ(difference(want, found), "") << static_cast<int>(strategy);
      // Two passes both ways of four regions in two slots, captured twice.
      EXPECT_EQ(found.counters.at(Counter::capture_passes), 2 * 2 * 4 * 2 * 2);
      EXPECT_EQ(want.counters.at(Counter::capture_passes), 0);
      for (const Counter counter : {Counter::pairs_routed, Counter::tokens_dropped,
                                    Counter::experts_used, Counter::ops_recomputed}) {
        EXPECT_EQ(found.counters.at(counter), want.counters.at(counter)) << to_text(counter);
      }
    }
  }
}

// A bucket that was evicted is captured in the middle of a step.
TEST(CapturePasses, KeepWhatHalfAStepHasAddedUp) {
  for (const Sharding strategy : {Sharding::no_shard, Sharding::optim_grads_params}) {
    Scenario s = base("M*E");
    s.fsdp.strategy = strategy;
    s.training.in_flight = 1;
    s.training.eval_every = 1;
    s.data.documents = {{{9, 9}, {3, 3, 3, 3, 3}, {30}}};
    s.cuda_graph.max_packed_seqs = {2, 8};
    s.cuda_graph.graph_memory_limit = 1;
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    const auto data = open_data(s);
    const Outcome want = run(s, *data);
    EXPECT_GT(want.counters.at(Counter::graphs_evicted), 0);
    s.cuda_graph.capture_passes = 1;
    EXPECT_EQ(difference(want, run(s, *data)), "") << static_cast<int>(strategy);
  }
}

// The first capture of a trainer that continues a step comes between its microbatches.
TEST(CapturePasses, KeepTheGradientsOfAStepThatIsContinued) {
  Scenario s = base("M*-");
  s.cuda_graph.warmup_steps = 0;
  s.cuda_graph.modules.clear();
  const auto data = open_data(s);
  const Outcome want = run(s, *data);
  s.cuda_graph.capture_passes = 1;
  const TemporaryFolder folder;
  const std::string path = folder / "state";
  Device device(open_device_under_test());
  {
    Trainer first(device, s, *data);
    first.step();
    first.accumulate(2);
    first.save(path);
  }
  Trainer second(device, s, *data);
  second.load(path);
  while (second.steps_done() < s.training.steps) second.step();
  EXPECT_EQ(second.weight_digest(), want.digest);
}

}  // namespace
}  // namespace lockstep::test
