// The offload plans of a stage with several chunks, and of several stages: what later stages keep,
// and copies back that begin in the pass of another chunk.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "engine/offload/early_copies.h"
#include "engine/offload/forecast.h"
#include "engine/offload/plan.h"
#include "engine/offload/time_model.h"
#include "engine/plan/regions.h"
#include "kernels/core/at.h"
#include "kernels/core/fault.h"
#include "scenarios/pass_order.h"
#include "scenarios/schema/words.h"
#include "tests/engine/offload/eager_offload.h"

namespace lockstep {
namespace {

using enum OffloadModule;

// ---- Stages that keep more ------------------------------------------------------------------

Scenario staged(const std::string& pattern, std::vector<OffloadModule> modules, std::int64_t stages,
                std::int64_t chunks) {
  Scenario s = scenario_of(pattern, std::move(modules));
  s.parallel.pipeline = stages;
  s.parallel.chunks = chunks;
  s.parallel.group = stages;
  if (chunks > 1) s.parallel.schedule = PipelineSchedule::interleaved;
  s.training.microbatches = 2 * stages;
  s.training.in_flight = scheduled_depth(s);
  return s;
}

// Layers whose groups stay, by why: "delta 4.core_attn, fraction 5.mlp_fc1".
std::string staying(const Scenario& s, int stage) {
  std::string text;
  for (const OffloadPlan& plan : plan_offloads(s, stage)) {
    for (const OffloadGroup& group : plan.groups) {
      if (!group.is_resident) continue;
      text += text.empty() ? "" : ", ";
      text += group.is_within_delta ? "delta " : "fraction ";
      text += std::to_string(group.layer) + "." + word(group.module);
    }
  }
  return text;
}

// Each mlp_fc1 has 8192 bytes, and each core_attn 16896.
TEST(OffloadDelta, KeepsWholeGroupsOfTheLastChunkFirst) {
  Scenario s = staged("*-*-*-*-", {core_attn, mlp_fc1}, 2, 2);
  EXPECT_EQ(staying(s, 1), "");
  s.offload.delta_bytes = 16896;
  EXPECT_EQ(staying(s, 0), "");
  EXPECT_EQ(staying(s, 1), "delta 6.core_attn");
  s.offload.delta_bytes = 16897;
  EXPECT_EQ(staying(s, 1), "delta 6.core_attn, delta 7.mlp_fc1");
  s.offload.delta_bytes = 16896 + 8193;
  EXPECT_EQ(staying(s, 1), "delta 2.core_attn, delta 6.core_attn, delta 7.mlp_fc1");
  s.offload.delta_bytes = std::int64_t{1} << 50;
  EXPECT_EQ(staying(s, 1),
            "delta 2.core_attn, delta 3.mlp_fc1, delta 6.core_attn, delta 7.mlp_fc1");
  EXPECT_TRUE(plan_offloads(s, 1).front().empty());
}

TEST(OffloadDelta, GrowsWithTheStage) {
  Scenario s = staged("--------", {mlp_fc1}, 4, 1);
  s.offload.delta_bytes = 1;
  EXPECT_EQ(staying(s, 0), "");
  EXPECT_EQ(staying(s, 1), "delta 2.mlp_fc1");
  s.offload.delta_bytes = 8192 / 3;
  EXPECT_EQ(staying(s, 3), "delta 6.mlp_fc1");
  s.offload.delta_bytes = 8192 / 3 + 1;
  EXPECT_EQ(staying(s, 3), "delta 6.mlp_fc1, delta 7.mlp_fc1");
}

TEST(OffloadDelta, LeavesTheRestToTheFraction) {
  Scenario s = staged("*-*-*-*-", {core_attn, mlp_fc1}, 2, 2);
  s.offload.delta_bytes = 1;
  s.offload.fraction = Ratio{700'000};  // None of three stays, one of four.
  EXPECT_EQ(staying(s, 0), "fraction 5.mlp_fc1");
  EXPECT_EQ(staying(s, 1), "delta 6.core_attn");
  s.offload.fraction = Ratio{600'000};
  EXPECT_EQ(staying(s, 1), "delta 6.core_attn, fraction 7.mlp_fc1");
}

// The rule once more, from its text: a group stays if what stays before it is less than is asked.
TEST(OffloadDeltaProperty, IsTheRuleOfEveryStage) {
  EXPECT_TRUE(rc::check([] {
    const std::int64_t stages = *rc::gen::inRange<std::int64_t>(1, 4);
    const std::int64_t chunks = *rc::gen::inRange<std::int64_t>(1, 4);
    std::string pattern;
    for (std::int64_t i = 0, n = stages * chunks + *rc::gen::inRange(0, 6); i < n; ++i)
      pattern += *rc::gen::element('M', '*', '-');
    // A layer of attention and the MLP behind it are one block.
    while (std::ssize(scenario_of(pattern, {}).blocks()) < stages * chunks) pattern += 'M';
    Scenario s = staged(pattern, {core_attn, mlp_fc1, mamba_in_proj, mamba_scan}, stages, chunks);
    std::erase_if(s.offload.modules, [](OffloadModule) { return *rc::gen::inRange(0, 4) == 0; });
    s.offload.fraction = Ratio{*rc::gen::inRange<std::int64_t>(0, 1'000'001)};
    s.offload.delta_bytes = *rc::gen::inRange<std::int64_t>(0, 120'000);
    for (int stage = 0; stage < stages; ++stage) {
      const std::vector<OffloadPlan> plans = plan_offloads(s, stage);
      std::int64_t before = 0, left = 0, by_fraction = 0;
      for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        for (const OffloadGroup& group : at(plans, chunk).groups) {
          RC_ASSERT(group.is_within_delta == (before < stage * s.offload.delta_bytes));
          before += group.bytes();
          left += !group.is_within_delta;
          by_fraction += group.is_resident && !group.is_within_delta;
        }
      }
      RC_ASSERT(by_fraction == left * (1'000'000 - s.offload.fraction.millionths) / 1'000'000);
      bool resident = false;  // The last ones of those that the fraction counts.
      for (const OffloadPlan& plan : plans) {
        for (const OffloadGroup& group : plan.groups) {
          if (group.is_within_delta) continue;
          RC_ASSERT(group.is_resident || !resident);
          resident = group.is_resident;
        }
      }
    }
  }));
}

// ---- Several chunks --------------------------------------------------------------------------

// Seconds for which compute waits for copies in a step of a stage.
double stalled_seconds(const Scenario& s, int stage) {
  const int microbatches = static_cast<int>(s.training.microbatches);
  return forecast(plan_offloads(s, stage), passes_of_step(s, 0, microbatches, stage)).stalled;
}

Scenario any_staged() {
  const std::int64_t stages = *rc::gen::inRange<std::int64_t>(1, 4);
  const std::int64_t chunks = *rc::gen::inRange<std::int64_t>(1, 4);
  std::string pattern;
  for (std::int64_t i = 0, n = stages * chunks + *rc::gen::inRange(0, 6); i < n; ++i)
    pattern += *rc::gen::element('M', '-');
  Scenario s = staged(pattern, {mlp_fc1, mamba_scan}, stages, chunks);
  s.training.microbatches = stages * *rc::gen::inRange<std::int64_t>(1, 5);
  if (*rc::gen::arbitrary<bool>()) s.parallel.schedule = PipelineSchedule::gpipe;
  s.training.in_flight = scheduled_depth(s);
  if (*rc::gen::arbitrary<bool>()) s.offload.max_inflight = *rc::gen::inRange<std::int64_t>(0, 4);
  return s;
}

// A pass through another chunk has none of the chunk's buffers, a forward pass through the same
// chunk those of one set.
TEST(OffloadChunksProperty, CopiesBackMayBeginInAPassThatLeavesTheirBuffersAlone) {
  EXPECT_TRUE(rc::check([] {
    const Scenario s = any_staged();
    const int stage = static_cast<int>(s.parallel.pipeline) - 1;
    const std::vector<OffloadPlan> plans = plan_offloads(s, stage);
    const std::vector<Pass> passes =
        passes_of_step(s, 0, static_cast<int>(s.training.microbatches), stage);
    for (const OffloadPlan& plan : plans) {
      RC_ASSERT(!plan.slot_to_come(passes, passes.size() - 1));
      for (std::size_t i = 0; i + 1 < passes.size(); ++i) {
        const Pass &before = passes[i], &next = passes[i + 1];
        const auto set = [&](const Pass& pass) { return pass.microbatch % plan.slots % plan.sets; };
        const bool may =
            !next.forward && next.chunk == plan.chunk && plan.bytes() > 0 &&
            (before.chunk != next.chunk || (before.forward && set(before) != set(next)));
        const std::optional<int> slot = plan.slot_to_come(passes, i);
        RC_ASSERT(slot.has_value() == may);
        if (may) RC_ASSERT(*slot == next.microbatch % plan.slots);
      }
    }
  }));
}

// What the last segment of a chunk without the head reads first has nothing of its own pass to run
// beside.
TEST(OffloadChunksProperty, WhatAChunkReadsFirstBeginsInThePassBefore) {
  EXPECT_TRUE(rc::check([] {
    const Scenario s = any_staged();
    for (int stage = 0; stage < s.parallel.pipeline; ++stage) {
      for (const OffloadPlan& plan : plan_offloads(s, stage)) {
        if (plan.has_head || plan.lead.empty()) continue;
        for (const OffloadGroup& group : plan.groups) {
          if (group.h2d.end != plan.backward_step(plan.segments - 1)) continue;
          RC_ASSERT(group.h2d.begin <= plan.segments);
          RC_ASSERT(group.h2d.begin >= plan.first_h2d_step());
        }
      }
    }
  }));
}

// Steps of the pass before come once each and in order, whatever that pass has; what it lacks comes
// when the backward pass begins.
TEST(OffloadChunksProperty, EveryEarlyStepIsRunOnce) {
  EXPECT_TRUE(rc::check([] {
    const Scenario s = any_staged();
    const std::vector<OffloadPlan> plans = plan_offloads(s);
    const OffloadPlan& plan = at(plans, *rc::gen::inRange<std::size_t>(0, plans.size()));
    EarlyCopies early;
    for (int slot = 0; slot < plan.slots; ++slot) {
      std::vector<int> steps;
      for (int behind = *rc::gen::inRange(0, 12) - 1; behind >= 0; --behind) {
        for (const int step : early.due(plan, slot, behind)) {
          RC_ASSERT(step <= plan.segments - behind);
          steps.push_back(step);
        }
      }
      for (const int step : early.missed(plan, slot)) steps.push_back(step);
      std::vector<int> all(plan.lead.size());
      std::iota(all.begin(), all.end(), plan.first_h2d_step());
      RC_ASSERT(steps == all);
    }
  }));
}

// A wide MLP computes for longer than its input takes on the link. Without the pass before, compute
// waits for what a chunk reads first in every backward pass that has a pass of another chunk before
// it.
TEST(OffloadChunks, CopiesBackHideBehindThePassOfAnotherChunk) {
  Scenario s = staged("--------", {mlp_norm}, 2, 2);
  s.model.hidden = 1024;
  s.model.mlp.hidden = 65536;
  for (const PipelineSchedule schedule : {PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    s.parallel.schedule = schedule;
    s.training.in_flight = scheduled_depth(s);
    const std::vector<OffloadPlan> plans = plan_offloads(s, 0);
    const std::vector<Pass> passes = passes_of_step(s, 0, 4, 0);
    int hosts = 0;
    for (std::size_t i = 0; i + 1 < passes.size(); ++i) {
      const OffloadPlan& next = at(plans, passes[i + 1].chunk);
      hosts += passes[i].chunk != next.chunk && next.slot_to_come(passes, i).has_value();
    }
    EXPECT_GE(hosts, 3) << word(schedule);
    const double beside = stalled_seconds(s, 0);
    plant_fault("reload-waits-for-its-own-pass");
    const double alone = stalled_seconds(s, 0);
    plant_fault("");
    const double copy = copy_seconds(plans.front().groups.front().bytes(), Link::alone);
    EXPECT_GE(alone, beside + 0.9 * hosts * copy) << word(schedule);
  }
}

}  // namespace
}  // namespace lockstep
