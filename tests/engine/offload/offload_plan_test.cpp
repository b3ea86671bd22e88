// The offload plan as a function of the scenario: what goes, what stays, when, and who shares which
// bytes.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/offload/forecast.h"
#include "engine/offload/plan.h"
#include "engine/offload/time_model.h"
#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "scenarios/rules/offload_modules.h"
#include "tests/engine/offload/eager_offload.h"

namespace lockstep {
namespace {

using enum OffloadModule;

std::vector<std::string> tensors_of(const OffloadPlan& plan) {
  std::vector<std::string> names;
  for (const OffloadGroup& group : plan.groups) {
    for (const OffloadTensor& tensor : group.tensors) names.push_back(tensor.name);
  }
  return names;
}

TEST(OffloadPlan, NamesWhatEachModuleSaves) {
  const OffloadPlan plan =
      plan_offload(scenario_of("M*-", {attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm,
                                       mlp_fc1, mamba_in_proj, mamba_scan}));
  const std::vector<std::string> want{
      "layers.0.norm.out",      "layers.0.in_proj",  "layers.0.conv",    "layers.0.scan",
      "layers.0.out",           "layers.1.norm.out", "layers.1.qkv",     "layers.1.core_attn.lse",
      "layers.1.core_attn.out", "layers.1.out",      "layers.2.norm.out"};
  EXPECT_EQ(tensors_of(plan), want);
  EXPECT_EQ(tensors_of(plan_offload(scenario_of("*", {attn_norm}))),
            std::vector<std::string>{"embedding.out"});
}

// Two backward passes read core attention's output, so it moves only when both modules do.
TEST(OffloadPlan, MovesASharedTensorOnceAndOnlyWithBothOfItsReaders) {
  const std::vector<std::string> alone{"layers.0.qkv", "layers.0.core_attn.lse"};
  EXPECT_EQ(tensors_of(plan_offload(scenario_of("*", {core_attn}))), alone);
  const OffloadPlan both = plan_offload(scenario_of("*", {core_attn, attn_proj}));
  EXPECT_EQ(both.groups.size(), 2u);
  EXPECT_EQ(both.groups[1].tensors.front().name, "layers.0.core_attn.out");
}

TEST(OffloadPlan, CountsBytesOfTheStorageType) {
  Scenario s = scenario_of("*", {core_attn});
  EXPECT_EQ(plan_offload(s).bytes(), 64 * (2 + 2) * 16 * 4 + 64 * 2 * 4);
  s.numerics = {Numerics::bf16};
  EXPECT_EQ(plan_offload(s).bytes(),
            64 * (2 + 2) * 16 * 2 + 64 * 2 * 4);  // The log-sums stay fp32.
}

TEST(OffloadPlan, KeepsExactlyTheFloorOfWhatTheFractionLeaves) {
  Scenario s = scenario_of("-----", {mlp_fc1});
  s.offload.fraction = Ratio{800'000};  // In floating point 5 * (1 - 0.8) is below 1.
  const OffloadPlan plan = plan_offload(s);
  EXPECT_FALSE(plan.groups[3].is_resident);
  EXPECT_TRUE(plan.groups[4].is_resident);
  EXPECT_EQ(plan.bytes(), 4 * 64 * 32 * 4);
}

TEST(OffloadPlan, LeavesSmallTensors) {
  Scenario s = scenario_of("*-", {core_attn, mlp_fc1});
  s.offload.min_bytes = 64 * 32 * 4;
  EXPECT_EQ(tensors_of(plan_offload(s)),
            (std::vector<std::string>{"layers.0.qkv", "layers.1.norm.out"}));
  s.offload.min_bytes = 1'000'000;
  EXPECT_TRUE(plan_offload(s).empty());
}

// A wide MLP computes for longer than its input takes on the link; a narrow one does not.
TEST(OffloadPlan, GivesACopyAsManySegmentsAsItTakes) {
  Scenario s = scenario_of("------", {mlp_norm});
  s.model.hidden = 1024;
  s.model.mlp.hidden = 65536;
  for (const OffloadGroup& group : plan_offload(s).groups) {
    EXPECT_EQ(group.tensors[0].written, group.layer - 1);
    EXPECT_EQ(group.d2h.begin, group.layer);
    EXPECT_EQ(group.d2h.end, group.layer + 1);
    EXPECT_EQ(group.h2d.begin,
              2 * 6 + 1 - (group.layer + 1));  // The backward pass of the layer behind it.
    EXPECT_EQ(group.h2d.end, 2 * 6 + 1 - group.layer);
  }
  EXPECT_EQ(plan_offload(s).prefetch(), 1);
  // Only the last layer's has nothing to hide behind: out and back between the forward and the
  // backward pass.
  EXPECT_LE(forecast(plan_offload(s)).stalled, 2 * static_cast<double>(s.training.microbatches) *
                                                   copy_seconds(plan_offload(s).groups[5].bytes()));
  s.model.mlp.hidden = 64;
  s.training.in_flight = 1;
  EXPECT_EQ(plan_offload(s).prefetch(),
            1);  // The link is never idle, so that an earlier begin gains nothing.
  EXPECT_GT(forecast(plan_offload(s)).stalled, 0);
}

// Two layers, one of which computes for as long as the other's copy takes: hidden, but only by a
// copy that begins before the segment that reads it comes next.
TEST(OffloadPlan, TakesNoMoreSegmentsThanHideTheCopies) {
  Scenario s = scenario_of("M-----", {mamba_scan});
  s.model.hidden = 1024;
  s.model.mamba.d_inner = 8192;
  s.model.mlp.hidden = 16384;
  s.training.in_flight = 1;
  const OffloadPlan plan = plan_offload(s);
  EXPECT_LE(forecast(plan).stalled, 0.002 * forecast(plan).compute);
  EXPECT_GT(plan.prefetch(), 1);
  EXPECT_LT(plan.prefetch(), 6);
  s.offload.max_inflight = plan.prefetch() - 1;
  EXPECT_GT(forecast(plan_offload(s)).stalled, forecast(plan).stalled);
}

// With more than two microbatches in flight a backward pass' copies begin in the forward pass
// before it, into the set of bins which that pass does not write.
TEST(OffloadPlan, BeginsCopiesBackInTheForwardPassBefore) {
  Scenario s = scenario_of("M-M-M-", {mamba_scan, mlp_fc1});
  s.training.microbatches = 8;
  for (const std::int64_t depth : {1, 2, 3, 4}) {
    s.training.in_flight = depth;
    const OffloadPlan plan = plan_offload(s);
    EXPECT_EQ(plan.sets, depth > 2 ? 2 : 1);
    const auto first =
        std::min_element(plan.groups.begin(), plan.groups.end(),
                         [](const auto& a, const auto& b) { return a.h2d.begin < b.h2d.begin; });
    EXPECT_EQ(plan.in_forward(first->h2d.begin), depth > 2);
    EXPECT_GE(first->h2d.begin, plan.first_h2d_step());
    const std::vector<Pass> passes = one_forward_one_backward(8, static_cast<int>(depth));
    for (std::size_t i = 0; i < passes.size(); ++i) {
      const std::optional<int> next = plan.slot_to_come(passes, i);
      if (!next) continue;
      EXPECT_GT(depth, 2);
      EXPECT_TRUE(passes[i].forward && !passes[i + 1].forward);
      EXPECT_EQ(*next, passes[i + 1].microbatch % depth);
      EXPECT_NE(*next % 2, passes[i].microbatch % depth % 2);
    }
  }
}

// The gain of both directions at once: nearly all that the copies of one way take. With one set
// they do so only if what is wanted first is free first.
TEST(OffloadPlan, BothWaysOverlapWithTwoSetsOrWithReversedBuffers) {
  Scenario s = scenario_of("M-M-M-", {mamba_scan});
  s.training.microbatches = 64;
  s.training.in_flight = 4;
  const OffloadForecast two = forecast(plan_offload(s));
  s.training.in_flight = 2;
  OffloadPlan one = plan_offload(s);
  ASSERT_GT(two.d2h, 2 * two.compute);  // The copies decide.
  EXPECT_TRUE(one.reversed);
  EXPECT_LT(forecast(one).seconds(), 1.5 * two.d2h);
  one.reversed = false;
  EXPECT_GT(forecast(one).seconds(), 1.8 * two.d2h);
  EXPECT_LT(two.seconds(), 1.2 * two.d2h);
}

TEST(OffloadPlan, EveryOtherSlotOfASetHasItsBuffersInReversedOrder) {
  Scenario s = scenario_of("-*-*", {mlp_fc1, core_attn});
  s.training.in_flight = 6;
  OffloadPlan plan = plan_offload(s);
  plan.reversed = true;
  ASSERT_EQ(plan.sets, 2);
  for (const int slot : {0, 1, 4, 5}) {
    for (const OffloadGroup& group : plan.groups) {
      for (const OffloadTensor& tensor : group.tensors) {
        EXPECT_EQ(plan.buffer_of(tensor, slot),
                  slot % 2 * plan.buffers.size() + static_cast<std::size_t>(tensor.buffer));
      }
    }
  }
  const auto& first = plan.groups[0].tensors[0];
  const auto& last = plan.groups[2].tensors[0];
  ASSERT_EQ(first.name, "layers.0.norm.out");
  ASSERT_EQ(last.name, "layers.2.norm.out");
  ASSERT_NE(first.buffer, last.buffer);
  EXPECT_EQ(plan.buffer_of(first, 2), plan.buffer_of(last, 0));
  EXPECT_EQ(plan.buffer_of(last, 3), plan.buffer_of(first, 1));
}

// Copies of one large layer among small ones hide behind those.
TEST(OffloadPlan, ComputeWaitsLessWithMoreSegmentsForACopy) {
  Scenario s = scenario_of("M-M-M-M-", {mamba_scan});
  s.model.hidden = 512;
  s.model.mlp.hidden = 16384;
  s.training.in_flight = 3;
  double stalled = 1e9;
  std::int64_t shared = 0;
  for (const std::int64_t most : {1, 2, 3}) {
    s.offload.max_inflight = most;
    const OffloadPlan plan = plan_offload(s);
    EXPECT_LE(forecast(plan).stalled, stalled);
    EXPECT_GE(plan.device_bytes(), shared);
    stalled = forecast(plan).stalled;
    shared = plan.device_bytes();
  }
}

TEST(OffloadPlan, CutsSegmentsAsTheGraphsDo) {
  Scenario s = scenario_of("*-*-", {qkv_linear, mlp_norm, mlp_fc1});
  s.cuda_graph.impl = GraphImpl::partial;
  const OffloadPlan plan = plan_offload(s);
  EXPECT_EQ(plan.segments, 2);
  for (const OffloadGroup& group : plan.groups) EXPECT_EQ(group.d2h.begin, group.layer / 2);
}

// The router of a layer in a graph, its experts outside: a late copy starts behind the next graph,
// or behind the head.
TEST(OffloadPlan, DelaysExpertsUntilTheNextGraph) {
  Scenario s = scenario_of("*E*E", {core_attn, expert_fc1, moe_act});
  s.cuda_graph.impl = GraphImpl::partial;
  s.cuda_graph.modules = {GraphModule::attn, GraphModule::moe_router, GraphModule::moe_preprocess};
  const OffloadPlan soon = plan_offload(s);
  s.offload.delay_until_cuda_graph = true;
  const OffloadPlan late = plan_offload(s);
  ASSERT_EQ(late.segments, 4);  // Graph, experts, graph, experts.
  ASSERT_EQ(late.groups.size(), 6u);
  for (const std::size_t i : {0u, 3u})
    EXPECT_EQ(late.groups[i].d2h.begin, soon.groups[i].d2h.begin);
  for (const std::size_t i : {1u, 2u}) EXPECT_EQ(late.groups[i].d2h.begin, 2);
  for (const std::size_t i : {4u, 5u}) EXPECT_EQ(late.groups[i].d2h.begin, late.segments);
  EXPECT_EQ(late.bytes(), soon.bytes());
}

// Rows that the experts' buffers have room for; of them a copy moves those in use, if the host
// knows them.
TEST(OffloadPlan, HasRoomForEveryRowOfTheExperts) {
  Scenario s = scenario_of("E", {expert_fc1, moe_act});
  s.model.moe.hidden = 24;
  EXPECT_EQ(plan_offload(s).bytes(),
            4 * 64 * (32 + 24) * 4);  // Four experts, capacity 2 * 2 * 64 / 4.
  s.model.moe.capacity_factor.reset();
  s.model.moe.pad_to_capacity = false;
  EXPECT_EQ(plan_offload(s).bytes(), 2 * 64 * (32 + 24) * 4);
  EXPECT_EQ(plan_offload(s).groups[0].tensors[0].rows, 0);
  s.model.moe.host_sync = true;
  EXPECT_EQ(plan_offload(s).bytes(), 2 * 64 * (32 + 24) * 4);
  EXPECT_EQ(plan_offload(s).groups[0].tensors[0].rows, 2 * 64);
}

Scenario any_scenario() {
  std::string pattern;
  for (int i = 0, n = *rc::gen::inRange(1, 12); i < n; ++i)
    pattern += *rc::gen::element('M', '*', '-', 'E');
  Scenario s = scenario_of(pattern, {});
  if (*rc::gen::arbitrary<bool>()) {
    s.cuda_graph.impl = GraphImpl::partial;
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::moe_router};
    if (*rc::gen::arbitrary<bool>()) s.cuda_graph.modules.clear();
  }
  for (const OffloadModule module : offloadable_modules(s)) {
    if (*rc::gen::arbitrary<bool>()) s.offload.modules.push_back(module);
  }
  s.offload.delay_until_cuda_graph = *rc::gen::arbitrary<bool>();
  s.offload.fraction = Ratio{*rc::gen::inRange<std::int64_t>(0, 1'000'001)};
  s.offload.min_bytes = *rc::gen::inRange<std::int64_t>(0, 20'000);
  s.training.in_flight = *rc::gen::inRange<std::int64_t>(1, 5);
  s.training.microbatches = s.training.in_flight + *rc::gen::inRange<std::int64_t>(0, 4);
  return s;
}

TEST(OffloadPlanProperty, NoTwoTensorsOfABufferAreAliveAtOnce) {
  EXPECT_TRUE(rc::check([] {
    const OffloadPlan plan = plan_offload(any_scenario());
    // At every step, of the forward pass and then of the backward pass, every buffer has at most
    // one owner.
    for (const bool forward : {true, false}) {
      for (int step = -1; step <= plan.last_step(); ++step) {
        std::vector<int> owners(plan.buffers.size());
        for (const OffloadGroup& group : plan.groups) {
          for (const OffloadTensor& tensor : group.tensors) {
            if (group.is_resident) continue;
            const bool alive = forward ? tensor.written <= step && step <= group.d2h.end
                                       : group.h2d.begin <= step && step <= group.h2d.end;
            at(owners, tensor.buffer) += alive;
          }
        }
        for (const int count : owners) RC_ASSERT(count <= 1);
      }
    }
  }));
}

// So that what a slot's tensors share, and never share, is the same in every slot.
TEST(OffloadPlanProperty, ReversedBuffersAreThoseOfTheSetInAnotherOrderAndAsLarge) {
  EXPECT_TRUE(rc::check([] {
    OffloadPlan plan = plan_offload(any_scenario());
    plan.reversed = true;
    for (int slot = 0; slot < plan.slots; ++slot) {
      std::map<int, std::size_t> where;
      std::set<std::size_t> taken;
      for (const OffloadGroup& group : plan.groups) {
        if (group.is_resident) continue;
        for (const OffloadTensor& tensor : group.tensors) {
          const std::size_t buffer = plan.buffer_of(tensor, slot);
          RC_ASSERT(buffer / plan.buffers.size() == static_cast<std::size_t>(slot % plan.sets));
          RC_ASSERT(plan.buffers[buffer % plan.buffers.size()] == tensor.bytes);
          RC_ASSERT(where.try_emplace(tensor.buffer, buffer).first->second == buffer);
          taken.insert(buffer);
        }
      }
      RC_ASSERT(taken.size() == where.size());
    }
  }));
}

TEST(OffloadPlanProperty, BuffersAreReversedWhereAStepIsFasterByIt) {
  EXPECT_TRUE(rc::check([] {
    OffloadPlan plan = plan_offload(any_scenario());
    const double chosen = forecast(plan).seconds();
    const bool reversed = plan.reversed;
    plan.reversed = !reversed;
    const double other = forecast(plan).seconds();
    RC_ASSERT(chosen <= other);
    RC_ASSERT(!reversed || chosen < other);
  }));
}

TEST(OffloadPlanProperty, ADelayOnlyPutsCopiesBehindTheNextGraph) {
  EXPECT_TRUE(rc::check([] {
    Scenario s = any_scenario();
    s.offload.delay_until_cuda_graph = true;
    const OffloadPlan plan = plan_offload(s);
    const std::vector<Segment> list = segments(s);
    for (const OffloadGroup& group : plan.groups) {
      const bool experts = group.module == expert_fc1 || group.module == moe_act;
      RC_ASSERT((group.d2h.begin > group.last_read) == experts);
      RC_ASSERT(group.d2h.begin <= plan.segments);
      if (!experts) continue;
      for (int i = group.last_read + 1; i < group.d2h.begin; ++i) RC_ASSERT(at(list, i).region < 0);
      if (group.d2h.begin < plan.segments) RC_ASSERT(at(list, group.d2h.begin).region >= 0);
    }
  }));
}

TEST(OffloadPlanProperty, CopiesHaveAtLeastASegmentAndNoMoreThanAllowed) {
  EXPECT_TRUE(rc::check([] {
    Scenario s = any_scenario();
    if (*rc::gen::arbitrary<bool>()) s.offload.max_inflight = *rc::gen::inRange<std::int64_t>(0, 6);
    const OffloadPlan plan = plan_offload(s);
    const int most = static_cast<int>(
        std::max<std::int64_t>(1, s.offload.max_inflight.value_or(plan.longest_h2d())));
    for (const OffloadGroup& group : plan.groups) {
      if (group.is_resident) continue;
      RC_ASSERT(group.h2d.length() >= 1 && group.h2d.length() <= most);
      RC_ASSERT(group.h2d.begin >= plan.first_h2d_step() && group.h2d.end <= plan.last_step());
      RC_ASSERT(group.d2h.length() >= 1 && group.d2h.length() <= most);
    }
    const OffloadForecast times = forecast(plan);
    RC_ASSERT(times.stalled >= 0 && times.hidden() >= 0 && times.hidden() <= 1);
  }));
}

TEST(OffloadPlanProperty, TheFractionIsExactAndTheLastOnesStay) {
  EXPECT_TRUE(rc::check([] {
    const Scenario s = any_scenario();
    const OffloadPlan plan = plan_offload(s);
    const auto n = static_cast<std::int64_t>(plan.groups.size());
    std::int64_t stay = 0;
    for (const OffloadGroup& group : plan.groups) stay += group.is_resident;
    // floor(n * (1 - f)): the largest whole number that is not above.
    RC_ASSERT(stay * 1'000'000 <= n * (1'000'000 - s.offload.fraction.millionths));
    RC_ASSERT((stay + 1) * 1'000'000 > n * (1'000'000 - s.offload.fraction.millionths));
    for (std::int64_t i = 0; i < n; ++i)
      RC_ASSERT(at(plan.groups, i).is_resident == (i >= n - stay));
  }));
}

TEST(OffloadPlanProperty, ASetIsNeverMoreThanOneSlotAndEveryTensorHasABuffer) {
  EXPECT_TRUE(rc::check([] {
    const OffloadPlan plan = plan_offload(any_scenario());
    RC_ASSERT(plan.device_bytes() <= plan.sets * plan.bytes());
    RC_ASSERT(plan.saved_bytes() >= 0);
    RC_ASSERT(plan.empty() == (plan.bytes() == 0));
    for (const OffloadGroup& group : plan.groups) {
      for (const OffloadTensor& tensor : group.tensors) {
        RC_ASSERT((tensor.buffer < 0) == group.is_resident);
        if (!group.is_resident) RC_ASSERT(at(plan.buffers, tensor.buffer) == tensor.bytes);
      }
    }
  }));
}

}  // namespace
}  // namespace lockstep
