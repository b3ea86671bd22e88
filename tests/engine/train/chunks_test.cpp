// Several chunks of one stage: a run has the bits of the same run with one chunk, whatever order
// the passes have.
#include "engine/plan/chunks.h"

#include <gtest/gtest.h>

#include <functional>

#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "scenarios/schema/words.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

Scenario base() {
  Scenario s;
  s.name = "chunks";
  s.model.pattern = "M*-M";
  s.model.dropout = {100'000};
  s.training.steps = 3;
  s.training.microbatches = 5;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}, {9}, {2, 40}},
                      {{64}, {3, 4, 20, 15, 9}, {0, 31}, {1, 1, 1}, {12}}};
  return s;
}

void settle(Scenario& s, std::int64_t chunks, PipelineSchedule schedule, std::int64_t group) {
  s.parallel.chunks = chunks;
  s.parallel.schedule = schedule;
  s.parallel.group = group;
  s.training.in_flight = scheduled_depth(s);
}

// Chunks run in every order, with what `change` asks for in both runs.
void expect_no_difference(const std::function<void(Scenario&)>& change) {
  Scenario one = base();
  change(one);
  const auto data = open_data(one);
  const Outcome want = run_whole(one, *data);
  for (const PipelineSchedule schedule : {PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    for (const auto& [chunks, group] : {std::pair<int, int>{2, 1}, {2, 2}, {3, 2}, {3, 5}}) {
      Scenario several = one;
      settle(several, chunks, schedule, group);
      ASSERT_TRUE(check_legality(several).empty());
      ASSERT_TRUE(check_built(several).empty());
      EXPECT_EQ(difference(want, run_whole(several, *data)), "")
          << word(schedule) << ", " << chunks << " chunks in groups of " << group;
    }
  }
}

TEST(Chunks, ChangeNoBitOfAnEagerRun) {
  expect_no_difference([](Scenario& s) { s.cuda_graph.impl = GraphImpl::none; });
}

TEST(Chunks, ChangeNoBitInGraphs) {
  expect_no_difference([](Scenario&) {});
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
    s.cuda_graph.max_packed_seqs = {2, 4};
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    s.cuda_graph.capture_passes = 1;
    s.training.recapture_at = {2};
  });
}

TEST(Chunks, ChangeNoBitInTheGraphOfAStep) {
  const auto whole = [](Scenario& s) {
    s.cuda_graph.impl = GraphImpl::full_iteration;
    s.training.steps = 4;
    s.training.recapture_at = {3};
  };
  expect_no_difference([&](Scenario& s) {
    whole(s);
    s.training.change_microbatches_at = {{2, 7}, {3, 5}};
    s.model.tied_embedding = true;
    s.cuda_graph.max_packed_seqs = {4};
  });
  expect_no_difference([&](Scenario& s) {
    whole(s);
    s.fsdp.strategy = Sharding::optim_grads_params;
    s.offload.modules = {OffloadModule::core_attn, OffloadModule::mamba_scan};
    s.offload.max_inflight = 1;
  });
}

// One chunk keeps its bucket then. Several evict each other in the middle of a step.
TEST(Chunks, ChangeNoBitWhereTheyEvictEachOther) {
  for (const std::int64_t limit : {1, 60'000}) {
    expect_no_difference([limit](Scenario& s) {
      s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
      s.cuda_graph.evaluation = GraphEvaluation::replay;
      s.cuda_graph.graph_memory_limit = limit;
    });
  }
}

TEST(Chunks, ChangeNoBitInSharedMemory) {
  expect_no_difference([](Scenario& s) {
    s.model.pattern = "M*-ME";
    s.model.recompute = {Recompute::mlp_act};
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    s.cuda_graph.shared_memory = true;
    s.checker.poison = {Poison::fresh, Poison::padding};
  });
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.shared_memory = true;
    s.training.change_microbatches_at = {{1, 7}, {2, 5}};
    s.training.in_flight = 3;
    s.offload.modules = {OffloadModule::qkv_linear, OffloadModule::core_attn,
                         OffloadModule::mamba_scan};
    s.offload.captured = true;
  });
}

// Parts of a step begin their groups elsewhere than the plan of shared memory has them.
TEST(Chunks, GoOnInSharedMemoryBehindAnyMicrobatch) {
  Scenario s = base();
  s.training.steps = 2;
  s.training.eval_every = 0;
  s.fsdp.strategy = Sharding::optim_grads;
  const auto data = open_data(s);
  const Outcome want = run_whole(s, *data);
  s.cuda_graph.shared_memory = true;
  settle(s, 3, PipelineSchedule::interleaved, 2);
  ASSERT_TRUE(check_legality(s).empty());
  const TemporaryFolder folder;
  for (int done = 1; done < 5; ++done) {
    const std::string path = folder / std::to_string(done);
    save_within_second_step(s, *data, done, path);
    EXPECT_EQ(run_whole(s, *data, {}, nullptr, path).digest, want.digest) << done;
  }
}

TEST(Chunks, ChangeNoBitOfATiedWeight) {
  expect_no_difference([](Scenario& s) { s.model.tied_embedding = true; });
}

TEST(Chunks, ChangeNoBitOfExperts) {
  expect_no_difference([](Scenario& s) {
    s.model.pattern = "E*EM";
    s.model.moe.aux_loss = {10'000};
    s.model.moe.router = Router::sigmoid;
    s.model.moe.expert_bias = true;
    s.cuda_graph.modules = {GraphModule::moe_router, GraphModule::attn};
  });
}

TEST(Chunks, ChangeNoBitBesideOffloadingAndRecomputation) {
  expect_no_difference([](Scenario& s) {
    s.model.recompute = {Recompute::layernorm};
    s.offload.modules = {OffloadModule::attn_norm, OffloadModule::core_attn,
                         OffloadModule::mamba_scan};
    s.offload.max_inflight = 2;
    s.cuda_graph.modules = {GraphModule::mlp};
  });
}

TEST(Chunks, ChangeNoBitOfChangingCounts) {
  expect_no_difference([](Scenario& s) {
    s.training.change_microbatches_at = {{1, 7}, {2, 5}};
    s.training.in_flight = 3;
  });
}

TEST(Chunks, ChangeNoBitOfShardsOnTwoRanks) {
  for (const Sharding strategy :
       {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    expect_no_difference([&](Scenario& s) {
      s.fsdp.strategy = strategy;
      s.fsdp.unit = {2};
      s.parallel.data = 2;
      s.cuda_graph.capture_passes = 1;
    });
    expect_no_difference([&](Scenario& s) {
      s.fsdp.strategy = strategy;
      s.parallel.data = 2;
      s.model.tied_embedding = true;
    });
  }
}

TEST(Chunks, HaveTheLayersAndSegmentsOfTheirPieces) {
  Scenario s = base();
  s.cuda_graph.impl = GraphImpl::none;
  settle(s, 2, PipelineSchedule::interleaved, 2);
  const std::vector<Segment> list = segments(s);
  const std::vector<Chunk> chunks = chunks_of(s, list);
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0].end_layer, 3);  // M, *-
  EXPECT_EQ(chunks[1].first_layer, 3);
  EXPECT_EQ(chunks[1].end_layer, 4);
  EXPECT_EQ(chunks[0].end_segment, chunks[1].first_segment);
  EXPECT_EQ(chunks[1].end_segment, static_cast<int>(list.size()));
  EXPECT_TRUE(chunks[0].is_first && !chunks[0].is_last);
  EXPECT_TRUE(chunks[1].is_last && !chunks[1].is_first);
  EXPECT_EQ(chunks[0].slots, 3);
  EXPECT_EQ(chunks[1].first_slot, 3);
  EXPECT_EQ(chunks[1].slots, 1);
  EXPECT_EQ(chunks[1].slot_of(4), 3);
  EXPECT_EQ(chunks[0].slot_of(4), 1);
}

}  // namespace
}  // namespace lockstep::test
