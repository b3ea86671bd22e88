// Several pipeline stages: a run has the bits of the same run on one, whatever order the passes
// have.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "harness/checker/checker.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "scenarios/schema/words.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

Scenario base() {
  Scenario s;
  s.name = "stages";
  s.model.pattern = "M*-M-*-M";
  s.model.dropout = {100'000};
  s.training.steps = 3;
  s.training.microbatches = 5;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}, {9}, {2, 40}},
                      {{64}, {3, 4, 20, 15, 9}, {0, 31}, {1, 1, 1}, {12}}};
  return s;
}

struct Shape {
  int stages, chunks, group;
  PipelineSchedule schedule;
};

std::vector<Shape> shapes() {
  using enum PipelineSchedule;
  return {{2, 1, 2, one_forward_one_backward},
          {4, 1, 4, one_forward_one_backward},
          {3, 1, 3, gpipe},
          {2, 2, 3, interleaved},
          {2, 2, 5, gpipe}};
}

void settle(Scenario& s, const Shape& shape) {
  s.parallel.pipeline = shape.stages;
  s.parallel.chunks = shape.chunks;
  s.parallel.group = shape.group;
  s.parallel.schedule = shape.schedule;
  s.training.in_flight = scheduled_depth(s);
}

std::string shape_text(const Shape& shape) {
  return std::to_string(shape.stages) + " stages, " + std::to_string(shape.chunks) + " chunks, " +
         word(shape.schedule);
}

// Stages run in every order, with what `change` asks for in both runs.
void expect_no_difference(const std::function<void(Scenario&)>& change) {
  Scenario one = base();
  change(one);
  const auto data = open_data(one);
  const Outcome want = run_whole(one, *data);
  for (const Shape& shape : shapes()) {
    Scenario several = one;
    settle(several, shape);
    ASSERT_TRUE(check_legality(several).empty()) << shape_text(shape);
    ASSERT_TRUE(check_built(several).empty()) << shape_text(shape);
    EXPECT_EQ(difference(want, run_whole(several, *data)), "") << shape_text(shape);
  }
}

TEST(Stages, ChangeNoBitOfAnEagerRun) {
  expect_no_difference([](Scenario& s) { s.cuda_graph.impl = GraphImpl::none; });
}

TEST(Stages, ChangeNoBitInGraphs) {
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
    s.cuda_graph.max_packed_seqs = {2, 4};
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    s.cuda_graph.capture_passes = 1;
    s.training.recapture_at = {2};
  });
}

TEST(Stages, ChangeNoBitUnderALimitOfGraphs) {
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
    s.cuda_graph.max_packed_seqs = {2, 4};
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    s.cuda_graph.graph_memory_limit = 1;
    s.parallel.data = 2;
  });
}

TEST(Stages, ChangeNoBitInSharedMemory) {
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    s.cuda_graph.shared_memory = true;
    s.checker.poison = {Poison::fresh, Poison::padding};
  });
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.shared_memory = true;
    s.offload.modules = {OffloadModule::qkv_linear, OffloadModule::core_attn,
                         OffloadModule::mamba_scan};
  });
}

TEST(Stages, ChangeNoBitOfATiedWeight) {
  expect_no_difference([](Scenario& s) { s.model.tied_embedding = true; });
  expect_no_difference([](Scenario& s) {
    s.model.tied_embedding = true;
    s.numerics = {Numerics::bf16};
    s.parallel.data = 2;
  });
}

TEST(Stages, ChangeNoBitOfExperts) {
  expect_no_difference([](Scenario& s) {
    s.model.pattern = "E*EMEM";
    s.model.moe.aux_loss = {10'000};
    s.model.moe.router = Router::sigmoid;
    s.model.moe.expert_bias = true;
    s.cuda_graph.modules = {GraphModule::moe_router, GraphModule::attn};
    s.parallel.data = 2;
  });
}

TEST(Stages, ChangeNoBitOfChangingCounts) {
  expect_no_difference([](Scenario& s) {
    s.training.change_microbatches_at = {{1, 8}, {2, 5}};
    s.training.in_flight = 3;
  });
}

TEST(Stages, ChangeNoBitOfShards) {
  for (const Sharding strategy :
       {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const int ranks : {1, 2}) {
      expect_no_difference([&](Scenario& s) {
        s.fsdp.strategy = strategy;
        s.fsdp.unit = {2};
        s.parallel.data = ranks;
        s.model.tied_embedding = ranks == 2;
        s.cuda_graph.capture_passes = 1;
      });
    }
  }
}

// Each stage adds up over its own ranks. One rank is a library of its own, whose sums have one
// term.
TEST(Stages, ChangeNoBitWhereALibraryAddsUp) {
  for (const Sharding strategy :
       {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    Scenario one = base();
    one.fsdp.strategy = strategy;
    one.model.tied_embedding = true;
    const auto data = open_data(one);
    const Outcome want = run_whole(one, *data);
    for (const Shape& shape : shapes()) {
      Scenario several = one;
      settle(several, shape);
      several.fsdp.reduction = Reduction::nccl;
      EXPECT_EQ(difference(want, run_whole(several, *data)), "") << shape_text(shape);
    }
  }
}

TEST(Stages, ChangeNoBitBesideOffloadingAndRecomputation) {
  expect_no_difference([](Scenario& s) {
    s.model.recompute = {Recompute::layernorm};
    s.offload.modules = {OffloadModule::attn_norm, OffloadModule::core_attn,
                         OffloadModule::mamba_scan};
    s.offload.max_inflight = 2;
    s.cuda_graph.impl = GraphImpl::none;
  });
}

TEST(Stages, ChangeNoBitBesideCopiesInGraphs) {
  expect_no_difference([](Scenario& s) {
    s.offload.modules = {OffloadModule::qkv_linear, OffloadModule::core_attn,
                         OffloadModule::mlp_fc1, OffloadModule::mamba_scan};
    s.offload.captured = true;
    s.offload.delta_bytes = 1;
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::mlp};
    s.training.recapture_at = {2};
  });
}

// Any number of stages, and one, goes on from where others have saved.
TEST(Stages, GoOnFromACheckpointOfOthers) {
  Scenario one = base();
  one.model.tied_embedding = true;
  one.fsdp.strategy = Sharding::optim_grads;
  one.training.eval_every = 0;
  const auto data = open_data(one);
  const Outcome want = run_whole(one, *data);
  const TemporaryFolder folder;
  std::string before;
  int number = 0;
  for (const Shape& shape : shapes()) {
    Scenario several = one;
    settle(several, shape);
    several.training.steps = 2;
    const std::string path = folder / std::to_string(number++);
    for (const std::string& from : {std::string(), before}) {
      Device device(open_device_under_test({}));
      run_ranks(device, shape.stages, 1, [&](Communicator& communicator) {
        Trainer trainer(device, several, *data, {.communicator = &communicator});
        if (!from.empty()) trainer.load(from);
        while (trainer.steps_done() < 2) trainer.step();
        trainer.save(path);
      });
      several.training.steps = 3;
      EXPECT_EQ(run_whole(several, *data, {}, nullptr, path).digest, want.digest)
          << shape_text(shape);
      several.training.steps = 2;
    }
    EXPECT_EQ(run_whole(one, *data, {}, nullptr, path).digest, want.digest) << shape_text(shape);
    before = path;
  }
}

// A part of a step may have fewer microbatches than there are stages, or leave so few behind whole
// groups.
TEST(Stages, GoOnBehindAnyMicrobatchOfAStep) {
  Scenario several = base();
  several.model.tied_embedding = true;
  several.fsdp.strategy = Sharding::optim_grads;
  several.training.steps = 2;
  several.training.microbatches = 6;
  several.training.eval_every = 0;
  several.data.documents[0].push_back({7, 8});
  several.data.documents[1].push_back({50});
  several.model.pattern = "M*-M-*M-M";
  settle(several, {3, 2, 3, PipelineSchedule::interleaved});
  ASSERT_TRUE(check_legality(several).empty());
  const auto data = open_data(several);
  const Outcome want = run_whole(several, *data);
  const TemporaryFolder folder;
  for (int i = 0; i < 10; ++i) {
    const int done = 1 + i % 5;
    several.cuda_graph.shared_memory = i >= 5;
    const std::string path = folder / std::to_string(done);
    save_within_second_step(several, *data, done, path);
    EXPECT_EQ(run_whole(several, *data, {}, nullptr, path).digest, want.digest) << done;
  }
}

TEST(Stages, OrderAllThatTheyExchange) {
  for (const Shape& shape : shapes()) {
    Scenario s = base();
    s.model.tied_embedding = true;
    s.checker.poison = {Poison::fresh, Poison::padding, Poison::staging};
    settle(s, shape);
    const auto data = open_data(s);
    for (const auto& [policy, shared] : {std::pair{SimOptions::Policy::random, false},
                                         {SimOptions::Policy::lazy, false},
                                         {SimOptions::Policy::random, true},
                                         {SimOptions::Policy::lazy, true}}) {
      s.cuda_graph.shared_memory = shared;
      if (shared) s.checker.poison = {Poison::fresh};
      Checker checker({.stop = false, .mutation = "", .dropped = {}});
      run_whole(s, *data, {.policy = policy, .seed = 7, .trace = nullptr}, &checker);
      for (const Hazard& hazard : checker.hazards())
        ADD_FAILURE() << shape_text(shape) << ": " << text(hazard);
    }
  }
}

RC_GTEST_PROP(StagesProperty, HaveTheDigestOfOneStage, ()) {
  Scenario one = base();
  one.training.steps = 2;
  one.training.eval_every = 0;
  one.model.tied_embedding = *rc::gen::arbitrary<bool>();
  one.cuda_graph.impl = *rc::gen::element(GraphImpl::none, GraphImpl::partial);
  one.parallel.data = *rc::gen::inRange(1, 3);
  one.training.microbatches = *rc::gen::inRange(2, 8);
  one.training.in_flight = 1;
  Scenario several = one;
  several.parallel.pipeline = *rc::gen::inRange<std::int64_t>(2, 5);
  several.parallel.chunks = *rc::gen::inRange<std::int64_t>(1, 4);
  several.parallel.group = *rc::gen::inRange<std::int64_t>(1, 8);
  several.parallel.schedule =
      several.parallel.chunks == 1
          ? *rc::gen::element(PipelineSchedule::one_forward_one_backward, PipelineSchedule::gpipe)
          : *rc::gen::element(PipelineSchedule::interleaved, PipelineSchedule::gpipe);
  if (several.parallel.chunks == 1) several.parallel.group = several.parallel.pipeline;
  several.training.in_flight = scheduled_depth(several);
  RC_PRE(check_legality(several).empty());
  const auto data = open_data(one);
  RC_ASSERT(run_whole(several, *data).digest == run_whole(one, *data).digest);
}

}  // namespace
}  // namespace lockstep::test
