#include "harness/expect/sharding_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "engine/fsdp/buffer_plan.h"
#include "engine/offload/plan.h"
#include "harness/expect/blind_spots.h"
#include "harness/expect/offload_bytes.h"
#include "harness/report/sharding_table.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names(const ShardingPlan& plan) {
  std::vector<std::string> list;
  for (const PlannedBucket& bucket : plan.buckets)
    list.push_back(bucket.name + (bucket.narrow ? " bf16" : ""));
  return list;
}

Scenario sharded(const char* pattern, Sharding strategy = Sharding::optim_grads_params) {
  Scenario s;
  s.model.pattern = pattern;
  s.fsdp.strategy = strategy;
  return s;
}

// The fourth example of the schema: five blocks in units of 2, 2 and 1.
TEST(ShardingPlan, TheOddUnitHasABufferOfItsOwn) {
  Scenario s = sharded("M*-M*-M");
  s.fsdp.unit = {2};
  const ShardingPlan plan = plan_sharding(s);
  EXPECT_THAT(names(plan),
              ElementsAre("embedding", "unit 0", "unit 1", "unit 2", "final norm", "head"));
  EXPECT_THAT(plan.pooled, ElementsAre(0, 1));
  EXPECT_THAT(plan.persistent, ElementsAre(2));
}

TEST(ShardingPlan, TheFirstOfTwoEquallyLargeClassesIsPooled) {
  const ShardingPlan plan = plan_sharding(sharded("M-M-"));
  EXPECT_THAT(plan.pooled, ElementsAre(0, 2));
  EXPECT_THAT(plan.persistent, ElementsAre(1, 3));
  EXPECT_THAT(plan_sharding(sharded("M--")).pooled, ElementsAre(1, 2));
}

TEST(ShardingPlan, EachPrecisionHasItsBuckets) {
  Scenario s = sharded("*-");
  s.numerics = {Numerics::bf16};
  EXPECT_THAT(names(plan_sharding(s)),
              ElementsAre("embedding bf16", "unit 0 bf16", "unit 0", "final norm", "head bf16"));
  s.model.tied_embedding = true;
  EXPECT_THAT(names(plan_sharding(s)),
              ElementsAre("embedding bf16", "unit 0 bf16", "unit 0", "final norm"));
}

TEST(ShardingPlan, EmbeddingAndHeadAreCutByWholeRows) {
  Scenario s = sharded("-");
  s.model.vocab = 10;
  s.model.hidden = 8;
  s.fsdp.bucket_bytes = 4 * 8 * 4 + 3;
  const ShardingPlan plan = plan_sharding(s);
  EXPECT_THAT(names(plan), ElementsAre("embedding 0", "embedding 1", "embedding 2", "unit 0",
                                       "final norm", "head 0", "head 1", "head 2"));
  EXPECT_EQ(plan.buckets[0].elements, 32);
  EXPECT_EQ(plan.buckets[2].elements, 16);
  s.fsdp.bucket_bytes = 1;  // Less than a row: a row of each rank.
  EXPECT_EQ(plan_sharding(s).buckets.size(), 10 + 1 + 1 + 10);
  s.parallel.data = 4;
  EXPECT_EQ(plan_sharding(s).buckets.size(), 3 + 1 + 1 + 3);
}

TEST(ShardingPlan, WithoutShardingNothingDependsOnUnits) {
  Scenario s = sharded("M*-", Sharding::no_shard);
  s.fsdp.unit = {2};
  s.fsdp.bucket_bytes = 64;
  s.numerics = {Numerics::bf16};
  EXPECT_THAT(names(plan_sharding(s)),
              ElementsAre("embedding", "unit 0", "unit 1", "final norm", "head"));
  EXPECT_THAT(plan_sharding(s).persistent, IsEmpty());
}

RC_GTEST_PROP(ShardingPlan, EveryElementIsInOneBucket, ()) {
  Scenario s = sharded(*rc::gen::element("M", "*-", "M*-E", "MMM*-*-E-"));
  s.numerics = {*rc::gen::element(Numerics::fp32, Numerics::bf16)};
  s.fsdp.strategy =
      *rc::gen::element(Sharding::no_shard, Sharding::optim, Sharding::optim_grads_params);
  s.fsdp.unit = {*rc::gen::inRange<std::int64_t>(1, 5)};
  s.fsdp.bucket_bytes = *rc::gen::element<std::int64_t>(0, 1, 1000, 100'000);
  s.model.tied_embedding = *rc::gen::arbitrary<bool>();
  std::int64_t planned = 0, all = 0;
  for (const PlannedBucket& bucket : plan_sharding(s).buckets) planned += bucket.elements;
  for (const ParameterShape& parameter : parameter_table(s)) all += parameter.count();
  RC_ASSERT(planned == all);
}

// The engine cuts alike, although neither asks the other.
RC_GTEST_PROP(ShardingPlan, IsTheEngines, ()) {
  Scenario s = sharded(*rc::gen::element("M", "*-", "M*-E", "MMM*-*-E-", "E*-M"));
  s.numerics = {*rc::gen::element(Numerics::fp32, Numerics::bf16)};
  s.parallel.data = *rc::gen::inRange<std::int64_t>(1, 5);
  s.fsdp.strategy = *rc::gen::element(Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                      Sharding::optim_grads_params);
  if (!with_reduction(s)) s.parallel.data = 2;
  s.fsdp.unit = {*rc::gen::inRange<std::int64_t>(1, 5)};
  s.fsdp.bucket_bytes = *rc::gen::element<std::int64_t>(0, 100, 1000, 100'000);
  s.fsdp.double_buffer = *rc::gen::arbitrary<bool>();
  s.fsdp.persist_buf_on_alloc_fail = *rc::gen::arbitrary<bool>();
  s.model.tied_embedding = *rc::gen::arbitrary<bool>();
  s.parallel.expert = *rc::gen::element<std::int64_t>(1, s.parallel.data);
  s.model.moe.experts = 12;
  const ShardingPlan plan = plan_sharding(s);
  const ParameterList list(s.model, expert_place(s, 0));
  const ShardLayout layout(list, s, static_cast<int>(s.parallel.data),
                           s.numerics.front() == Numerics::bf16);
  RC_ASSERT(layout.buckets.size() == plan.buckets.size());
  RC_ASSERT(std::ssize(layout.units) == plan.units + 2);  // Embedding; final norm and head.
  RC_ASSERT(plan_gradients(layout, s.fsdp).persistent.size() == plan.persistent.size());
  std::vector<std::int64_t> ours, theirs;
  for (const PlannedBucket& bucket : plan.buckets) ours.push_back(bucket.elements);
  for (const Bucket& bucket : layout.buckets) {
    theirs.push_back(0);
    for (const Extent& extent : bucket.extents)
      theirs.back() += extent.rows * extent.width * bucket.sources;
  }
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  RC_ASSERT(ours == theirs);
}

// ---- Counts -------------------------------------------------------------------------------------

std::int64_t of_step(const Scenario& s) {
  return collectives_of_step(s, plan_sharding(s), s.training.microbatches);
}

TEST(Collectives, OneRankThatShardsNothingMakesNone) {
  Scenario s = sharded("M*-", Sharding::no_shard);
  EXPECT_EQ(of_step(s), 0);
  EXPECT_EQ(collectives_at_start(s, plan_sharding(s)), 0);
  EXPECT_EQ(collectives_of_evaluation(s, plan_sharding(s), 2), 0);
  s.parallel.data = 2;  // Five buckets: out and back; and the losses.
  EXPECT_EQ(of_step(s), 2 * 5 + 1);
}

TEST(Collectives, FollowFromTheStrategy) {
  // Five buckets, two units, two microbatches, both in flight.
  EXPECT_EQ(of_step(sharded("M*-", Sharding::optim)), 5 + 1 + 5 + 1);
  EXPECT_EQ(of_step(sharded("M*-", Sharding::optim_grads)), 2 * 5 + 1 + 5 + 1);
  // Uses 0 1 0 1 1 0 1 0: seven gathers; three buckets are resident.
  EXPECT_EQ(of_step(sharded("M*-")), 2 * 5 + 1 + 7 + 3 + 1);
  const Scenario s = sharded("M*-");
  EXPECT_EQ(collectives_at_start(s, plan_sharding(s)), 3);
  EXPECT_EQ(collectives_of_evaluation(s, plan_sharding(s), 2), 4 + 1);
}

TEST(Collectives, OfThePassesOfACaptureFollowFromTheUnitsOfItsRegions) {
  const auto of_capture = [](const Scenario& s) {
    return collectives_of_capture(s, plan_sharding(s));
  };
  Scenario s = sharded("M*-");
  EXPECT_EQ(of_capture(s), 0);
  s.cuda_graph.capture_passes = 3;
  // Two regions, each in a unit of one bucket, and two slots: two gathers and a reduction.
  EXPECT_EQ(of_capture(s), 3 * 2 * 2 * 3);
  s.cuda_graph.modules = {GraphModule::mamba};
  EXPECT_EQ(of_capture(s), 3 * 2 * 1 * 3);
  s.fsdp.unit = {2};
  EXPECT_EQ(of_capture(s), 3 * 2 * 1 * 3) << "a larger unit, of one bucket";
  s.numerics = {Numerics::bf16};
  EXPECT_EQ(of_capture(s), 3 * 2 * 2 * 3) << "of two buckets";
  s = sharded("M*-", Sharding::optim_grads);
  s.cuda_graph.capture_passes = 1;
  EXPECT_EQ(of_capture(s), 2 * 2);
  for (const Sharding strategy : {Sharding::optim, Sharding::no_shard}) {
    s.fsdp.strategy = strategy;
    s.parallel.data = 2;
    EXPECT_EQ(of_capture(s), 0) << "no pass of a capture is the last of a step";
  }
}

TEST(Collectives, AUnitThatIsUsedTwiceInARowIsGatheredOnce) {
  Scenario s = sharded("M*-");
  s.training.in_flight = 1;  // Uses 0 1 1 0 0 1 1 0.
  EXPECT_EQ(of_step(s), 2 * 5 + 1 + 5 + 3 + 1);
  s.fsdp.unit = {2};  // One unit: it stays for the step.
  EXPECT_EQ(of_step(s), 2 * 4 + 1 + 1 + 3 + 1);
}

TEST(Collectives, DoNotDependOnPrefetchOrBuffers) {
  Scenario s = sharded("M*-M");
  const std::int64_t calls = of_step(s);
  s.fsdp.prefetch = 2;
  EXPECT_EQ(of_step(s), calls);
  s.fsdp.double_buffer = false;
  EXPECT_EQ(of_step(s), calls);
}

TEST(Collectives, ExpertsExchangeTheirLossesAndCounts) {
  Scenario s = sharded("*E-E", Sharding::optim_grads);
  const std::int64_t calls = of_step(s);
  s.model.moe.aux_loss = Ratio{10'000};
  EXPECT_EQ(of_step(s), calls + 1);
  s.model.moe.expert_bias = true;
  EXPECT_EQ(of_step(s), calls + 1 + 2);
  EXPECT_EQ(collectives_of_evaluation(s, plan_sharding(s), 1), 2);
}

// Norm, losses and what stays resident come between the graphs.
TEST(Collectives, OfThePassesLieInTheGraphOfAStep) {
  for (const auto& [strategy, calls] : {std::pair{Sharding::optim, 5},
                                        {Sharding::optim_grads, 2 * 5},
                                        {Sharding::optim_grads_params, 2 * 5 + 7}}) {
    const Scenario s = sharded("M*-", strategy);
    EXPECT_EQ(collectives_of_passes(s, plan_sharding(s), 2), calls);
    EXPECT_EQ(collectives_of_forward_passes(s, plan_sharding(s), 2),
              strategy == Sharding::optim_grads_params ? 4 : 0);
  }
  EXPECT_EQ(collectives_of_passes(Scenario(), plan_sharding(Scenario()), 2), 0);
}

// The library leaves its sum on every rank at once.
TEST(Collectives, OfTheLibrarysSumsAreFewer) {
  Scenario s = sharded("M*-", Sharding::no_shard);
  s.parallel.data = 2;
  const std::int64_t buckets = std::ssize(plan_sharding(s).buckets);
  const std::int64_t exchanged = collectives_of_step(s, plan_sharding(s), 2);
  s.fsdp.reduction = Reduction::nccl;
  EXPECT_EQ(collectives_of_step(s, plan_sharding(s), 2), exchanged - buckets);
}

// ---- Words --------------------------------------------------------------------------------------

TEST(ShardingTable, ShowsUnitsSlotsAndCollectives) {
  EXPECT_EQ(sharding_table(Scenario()), "");
  Scenario s = sharded("M*-M*-M");
  s.fsdp.unit = {2};
  s.parallel.data = 3;
  const std::string table = sharding_table(s);
  EXPECT_THAT(table, testing::HasSubstr("optim_grads_params over 3 ranks (fp32)"));
  EXPECT_THAT(table, testing::ContainsRegex("unit 2 .*its own.*its own"));
  EXPECT_THAT(table, testing::HasSubstr("collectives of a rank: 3 at the start"));
  EXPECT_THAT(table, testing::Not(testing::HasSubstr("in the graph")));
  s.cuda_graph.impl = GraphImpl::full_iteration;
  EXPECT_THAT(sharding_table(s),
              testing::HasSubstr("in the graph of a step: 23, of an evaluation: 6\n"));
}

TEST(BlindSpots, AreNamed) {
  const auto spots = [](const Scenario& s) {
    std::string text;
    for (const std::string& spot : blind_spots(s)) text += spot.substr(0, spot.find(':')) + "; ";
    return text;
  };
  EXPECT_EQ(spots(Scenario()), "");
  Scenario s = sharded("MMM");
  s.model.dropout = Ratio{100'000};
  EXPECT_EQ(spots(s), "one rank; ");
  s.parallel.data = 2;  // Two microbatches in one left fold: their order shows.
  EXPECT_EQ(spots(s), "");
  s.training.microbatches = 1;
  EXPECT_EQ(spots(s), "two ranks; one microbatch; ");
  s.parallel.data = 3;
  s.training.microbatches = 2;
  s.model.dropout = {};
  s.model.pattern = "M*";
  s.training.optimizer.lr = 0;
  EXPECT_EQ(spots(s), "no learning rate; no dropout; no more than two units in two slots; ");
  s.fsdp.strategy = Sharding::optim;
  s.parallel.data = 2;
  EXPECT_EQ(spots(s), "two ranks; no learning rate; no dropout; ");
  s.fsdp.reduction = Reduction::nccl;
  EXPECT_EQ(spots(s), "two ranks; no learning rate; no dropout; ");
  s.parallel.data = 3;
  EXPECT_EQ(spots(s), "no learning rate; no dropout; the library's sums; ");
  s.parallel.transport = Transport::shm;
  EXPECT_EQ(spots(s), "ranks are processes; no learning rate; no dropout; the library's sums; ");
}

TEST(BlindSpots, ADelayThatDelaysNothingIsNamed) {
  Scenario s;
  s.model.pattern = "M-";
  s.offload.delay_until_cuda_graph = true;
  ASSERT_EQ(blind_spots(s).size(), 1);
  EXPECT_THAT(blind_spots(s).front(), testing::HasSubstr("delays nothing"));
  s.model.pattern = "EE";
  s.offload.modules = {OffloadModule::expert_fc1};
  EXPECT_TRUE(blind_spots(s).empty());
}

TEST(BlindSpots, AModuleOfWhichNothingMovesIsNamedWithTheReason) {
  Scenario s;
  s.model.pattern = "*-E";
  s.offload.modules = {OffloadModule::core_attn, OffloadModule::expert_fc1};
  EXPECT_THAT(blind_spots(s), testing::IsEmpty());
  s.offload.fraction = Ratio{500'000};
  EXPECT_THAT(blind_spots(s),
              testing::ElementsAre("offload.modules: nothing of expert_fc1 moves, because "
                                   "offload.fraction keeps the last 1 of 2 groups on the device, "
                                   "and all of its groups are among them"));
  s.model.pattern = "E*-";  // The experts come first, and go.
  EXPECT_THAT(blind_spots(s), testing::ElementsAre(testing::HasSubstr("nothing of core_attn")));
  s.offload.fraction = Ratio{1'000'000};
  s.offload.min_bytes = 1 << 30;
  EXPECT_THAT(blind_spots(s),
              testing::ElementsAre(testing::HasSubstr("nothing of core_attn moves, because its "
                                                      "largest tensor has "),
                                   testing::HasSubstr("fewer than offload.min_bytes 1073741824")));
}

TEST(BlindSpots, WhatLaterStagesKeepIsNamedWithItsReason) {
  Scenario s;
  s.model.pattern = "-*-";
  s.offload.modules = {OffloadModule::core_attn, OffloadModule::mlp_fc1};
  s.parallel.pipeline = 2;
  s.training.in_flight = 2;
  s.offload.delta_bytes = 1;
  EXPECT_THAT(blind_spots(s),
              testing::ElementsAre("offload.modules: nothing of core_attn moves, because "
                                   "offload.delta_bytes keeps 1 of 3 groups on the device, and all "
                                   "of its groups are among them"));
  s.model.pattern = "*-M";  // The last stage has nothing to keep.
  EXPECT_THAT(blind_spots(s),
              testing::ElementsAre("offload.delta_bytes: no stage but the first has anything to "
                                   "offload, so it keeps nothing"));
  s.parallel.pipeline = 1;
  EXPECT_THAT(blind_spots(s), testing::IsEmpty());
}

// A module is named if no group of it moves by the engine's plan, and only then.
TEST(BlindSpots, ModulesThatStayAreThoseOfTheEnginesPlan) {
  for (const std::int64_t min_bytes : {0, 4096, 16384, 65536}) {
    for (const std::int64_t fraction : {100'000, 300'000, 500'000, 800'000, 1'000'000}) {
      Scenario s;
      s.model.pattern = "M*-E*";
      s.offload.modules = {OffloadModule::core_attn, OffloadModule::mlp_fc1,
                           OffloadModule::expert_fc1, OffloadModule::moe_act,
                           OffloadModule::mamba_scan};
      s.offload.min_bytes = min_bytes;
      s.offload.fraction = Ratio{fraction};
      std::set<OffloadModule> staying(s.offload.modules.begin(), s.offload.modules.end()), named;
      for (const OffloadGroup& group : plan_offload(s).groups) {
        if (!group.is_resident) staying.erase(group.module);
      }
      for (const StayingModule& one : staying_modules(s)) named.insert(one.module);
      EXPECT_EQ(named, staying) << min_bytes << " " << fraction;
    }
  }
}

}  // namespace
}  // namespace lockstep
