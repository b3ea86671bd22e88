// Layers of experts in the engine: what their bits may not depend on, what they count and what they
// remember.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/core/fault.h"
#include "tests/engine/train/training_run.h"

namespace lockstep::test {
namespace {

using enum GraphModule;

Scenario base(const std::string& pattern = "*E") {
  Scenario s;
  s.name = "experts";
  s.model.pattern = pattern;
  s.model.moe.capacity_factor = Ratio{1'250'000};
  s.model.moe.shared_hidden = 16;
  s.model.moe.router = Router::sigmoid;
  s.model.moe.expert_bias = true;
  s.model.moe.aux_loss = Ratio{10'000};
  s.model.moe.z_loss = Ratio{1'000};
  s.model.dropout = {100'000};
  s.training.steps = 4;
  s.training.microbatches = 3;
  s.training.in_flight = 2;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}}, {{64}, {3, 4, 20, 15, 9}, {0, 31}}};
  return s;
}
void make_dropless(Scenario& s) {
  s.model.moe.capacity_factor.reset();
  s.model.moe.pad_to_capacity = false;
  s.cuda_graph.modules = {attn};
}

Outcome outcome(const Scenario& s, const SimOptions& sim = {}) {
  return run(s, *open_data(s), sim);
}
void expect_invariant(const Scenario& a, const std::function<void(Scenario&)>& change) {
  Scenario b = a;
  change(b);
  EXPECT_EQ(difference(outcome(a), outcome(b)), "");
}

TEST(Moe, NothingDependsOnTheGraphModules) {
  const Scenario eager = [] {
    Scenario s = base("M*E");
    s.cuda_graph.impl = GraphImpl::none;
    return s;
  }();
  const std::vector<std::vector<GraphModule>> sets{{},
                                                   {moe},
                                                   {attn, moe},
                                                   {moe_router},
                                                   {attn, moe_router},
                                                   {attn, moe_router, moe_preprocess},
                                                   {mamba, moe_router}};
  for (const auto& modules : sets) {
    expect_invariant(eager, [&](Scenario& s) {
      s.cuda_graph.impl = GraphImpl::partial;
      s.cuda_graph.modules = modules;
    });
  }
  expect_invariant(eager, [](Scenario& s) { s.cuda_graph.impl = GraphImpl::full_iteration; });
}

TEST(Moe, NothingDependsOnSlotsFallbackOrRecapture) {
  const Scenario s = base("*E-E");
  for (const int depth : {1, 3})
    expect_invariant(s, [&](Scenario& b) { b.training.in_flight = depth; });
  expect_invariant(s, [](Scenario& b) { b.cuda_graph.max_packed_seqs = {2}; });
  expect_invariant(s, [](Scenario& b) { b.training.recapture_at = {2, 3}; });
  expect_invariant(s, [](Scenario& b) { b.cuda_graph.warmup_steps = 3; });
}

TEST(Moe, NothingDependsOnPadding) {
  Scenario s = base();
  s.cuda_graph.modules = {attn, moe_router};
  expect_invariant(s, [](Scenario& b) { b.model.moe.pad_to_capacity = false; });
  expect_invariant(s, [](Scenario& b) {
    b.model.moe.pad_to_capacity = false;
    b.model.moe.host_sync = true;
  });
  for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::full_iteration}) {
    expect_invariant(s, [&](Scenario& b) {
      b.model.moe.pad_to_capacity = false;
      b.cuda_graph.impl = impl;
      b.cuda_graph.modules.clear();
    });
  }
}

// A capacity of the whole pack drops nothing.
TEST(Moe, DroplessIsARoomyCapacity) {
  Scenario s = base();
  make_dropless(s);
  expect_invariant(s, [](Scenario& b) {
    b.model.moe.capacity_factor = Ratio{2'000'000};
    b.model.moe.pad_to_capacity = true;
    b.cuda_graph.modules = {};
  });
  expect_invariant(s, [](Scenario& b) { b.model.moe.host_sync = true; });
  expect_invariant(s, [](Scenario& b) { b.cuda_graph.modules = {}; });
  expect_invariant(s, [](Scenario& b) { b.cuda_graph.modules = {moe}; });
  expect_invariant(s, [](Scenario& b) {
    b.cuda_graph.modules = {};
    b.cuda_graph.impl = GraphImpl::full_iteration;
  });
  expect_invariant(s, [](Scenario& b) {
    b.cuda_graph.modules = {attn, moe_router, moe_preprocess};
  });
  expect_invariant(s, [](Scenario& b) {
    b.model.moe.host_sync = true;
    b.cuda_graph.modules = {moe_router};
  });
}

TEST(Moe, ScheduleOfStreamsLeavesNoTrace) {
  Scenario s = base();
  s.cuda_graph.modules = {attn, moe_router};
  const Outcome want = outcome(s);
  for (std::uint64_t seed = 2; seed < 8; ++seed)
    EXPECT_EQ(difference(want, outcome(s, {.seed = seed})), "");
}

TEST(Moe, CountsPairsOfTrainingAlone) {
  for (const bool evaluates : {false, true}) {
    Scenario s = base("*EE");
    s.training.eval_every = evaluates ? 1 : 0;
    std::int64_t tokens = 0;
    for (std::int64_t step = 0; step < s.training.steps; ++step) {
      for (const Microbatch& m : open_data(s)->training(step).microbatches) {
        for (const Document& d : m.documents) tokens += static_cast<std::int64_t>(d.tokens.size());
      }
    }
    const auto counters = outcome(s).counters;
    EXPECT_EQ(counters.at(Counter::pairs_routed), tokens * s.model.moe.top_k * 2);
    EXPECT_EQ(counters.at(Counter::experts_used), 8);
    EXPECT_GT(counters.at(Counter::tokens_dropped), 0);
    Scenario roomy = s;
    make_dropless(roomy);
    EXPECT_EQ(outcome(roomy).counters.at(Counter::tokens_dropped), 0);
  }
}

TEST(Moe, HostSyncSynchronises) {
  Scenario s = base();
  make_dropless(s);
  const std::int64_t without = outcome(s).counters.at(Counter::host_syncs);
  s.model.moe.host_sync = true;
  // A forward pass each: 4 steps of 3 microbatches and 2 evaluations of 3.
  EXPECT_EQ(outcome(s).counters.at(Counter::host_syncs), without + 18);
}

TEST(Moe, BiasMovesByTheRateEachStep) {
  Scenario s = base();
  s.training.steps = 1;
  s.cuda_graph.impl = GraphImpl::none;
  const Outcome one = outcome(s);
  ASSERT_EQ(one.expert_biases.size(), 1u);
  for (const float b : one.expert_biases[0])
    EXPECT_TRUE(b == 0.001f || b == -0.001f || b == 0) << b;
  s.training.steps = 4;
  EXPECT_FALSE(same_bits(one.expert_biases, outcome(s).expert_biases));
}

TEST(Moe, ReportsRouterLossesApart) {
  Scenario s = base();
  const Outcome with = outcome(s);
  EXPECT_GT(with.steps[0].router_losses.balance, 0);
  EXPECT_GT(with.steps[0].router_losses.z, 0);
  s.model.moe.aux_loss = s.model.moe.z_loss = Ratio{0};
  const Outcome without = outcome(s);
  EXPECT_EQ(without.steps[0].router_losses.balance, 0);
  EXPECT_EQ(without.steps[0].router_losses.z, 0);
  EXPECT_EQ(bits(with.steps[0].loss), bits(without.steps[0].loss));  // Not part of the loss;
  EXPECT_NE(with.digest, without.digest);                            // but of its gradient.
}

// ---- Neighbours: only a capacity makes a token see the others -----------------------------------
std::vector<float> losses_of(const Scenario& s, const std::vector<Document>& order,
                             std::int32_t of) {
  const Outcome r = run(s, FixedData({step_of({{order}}, 20)}));
  std::vector<float> seen;
  std::int64_t start = 0;
  for (const Document& d : order) {
    const auto length = static_cast<std::int64_t>(d.tokens.size());
    if (d.number == of)
      seen.assign(r.token_losses[0].begin() + start, r.token_losses[0].begin() + start + length);
    start += slot_rows(length, s.data.gaps, s.data.align);
  }
  return seen;
}
TEST(Moe, DroplessTokensDoNotSeeTheirNeighbours) {
  Scenario s = base("*EE");
  make_dropless(s);
  s.training.microbatches = s.training.in_flight = s.training.steps = 1;
  s.cuda_graph.impl = GraphImpl::none;
  std::vector<Document> all;
  for (std::int32_t n = 0; n < 4; ++n) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t t = 0; t < 7 + n; ++t) tokens.push_back((13 * n + 5 * t) % 64);
    all.push_back(document(n, tokens));
  }
  const std::vector<Document> other{all[3], all[1], all[0], all[2]};
  for (std::int32_t n = 0; n < 4; ++n) {
    const auto want = losses_of(s, all, n);
    EXPECT_TRUE(same_bits(want, losses_of(s, other, n)));
    EXPECT_TRUE(same_bits(want, losses_of(s, {all[static_cast<std::size_t>(n)]}, n)));
    Scenario gaps = s;
    gaps.data.gaps = 2;
    EXPECT_TRUE(same_bits(want, losses_of(gaps, all, n)));
  }
}

// ---- Checkpoint ---------------------------------------------------------------------------------
TEST(Moe, AResumedRunHasTheBiasOfTheOneThatWasSaved) {
  const Scenario s = base();
  const auto data = open_data(s);
  EXPECT_EQ(difference(run(s, *data), run_resumed(s, *data, 2)), "");
}

// ---- Faults -------------------------------------------------------------------------------------
TEST(Moe, PlantedFaultsShow) {
  Scenario s = base();
  s.cuda_graph.capture_passes = 1;
  const Outcome sound = outcome(s);
  for (const char* name : {"evaluation-counts-pairs", "expert-bias-never-updated",
                           "capture-passes-leave-their-counts"}) {
    plant_fault(name);
    const Outcome broken = outcome(s);
    plant_fault("");
    const bool counted =
        sound.counters.at(Counter::pairs_routed) == broken.counters.at(Counter::pairs_routed);
    EXPECT_FALSE(counted && difference(sound, broken).empty()) << name;
  }
}

}  // namespace
}  // namespace lockstep::test
