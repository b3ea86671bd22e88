#include "harness/expect/expectations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "harness/expect/offload_bytes.h"
#include "harness/expect/recomputed_ops.h"
#include "harness/expect/run_expectations.h"
#include "harness/expect/vacuity.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

// Documents of given lengths, without a reader.
class Lengths : public DataSource {
 public:
  explicit Lengths(const Scenario& scenario) : scenario_(scenario) {}
  StepData training(std::int64_t step) const override {
    StepData data;
    const auto& steps = scenario_.data.documents;
    const StepLengths& lists = steps[step % steps.size()];
    for (std::int64_t g = 0; g < scenario_.training.microbatches_at(step) * scenario_.parallel.data;
         ++g) {
      Microbatch microbatch;
      for (const std::int64_t length : lists[g % lists.size()]) {
        Document one;
        one.tokens.assign(length, 0);
        microbatch.documents.push_back(one);
      }
      data.microbatches.push_back(microbatch);
    }
    return data;
  }
  StepData evaluation(std::int64_t step) const override { return training(step); }
  double unigram_entropy() const override { return 0; }

 private:
  const Scenario& scenario_;
};

bool is_expected(const Scenario& scenario, Counter counter) {
  for (const Expectation& one : expectations(scenario, Lengths(scenario))) {
    if (one.counter == counter) return true;
  }
  return false;
}

Expectation expected(const Scenario& scenario, Counter counter) {
  for (const Expectation& one : expectations(scenario, Lengths(scenario))) {
    if (one.counter == counter) return one;
  }
  return {};
}

TEST(Expectations, TheDefaultScenarioLaunchesSixteenGraphs) {
  const Scenario scenario;
  EXPECT_EQ(graph_regions(scenario), 2);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).min, 16);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).max, 16);
  EXPECT_EQ(expected(scenario, Counter::eager_fallbacks).max, 0);
  EXPECT_EQ(expected(scenario, Counter::graphs_captured).min, 8);
}

TEST(Expectations, FallbacksAreCountedByReason) {
  Scenario scenario;
  scenario.training.steps = 3;
  scenario.cuda_graph.max_packed_seqs = {4};
  scenario.cuda_graph.max_seqlen = 33;
  scenario.data.documents = {{{64}}, {{3, 4, 20, 15, 9}, {34}}, {{33}, {1, 1, 1, 1, 34}}};
  const auto count = [&](Counter counter) { return expected(scenario, counter).max; };
  EXPECT_EQ(count(Counter::eager_fallbacks), 3);
  EXPECT_EQ(count(Counter::fallbacks_documents), 2);
  EXPECT_EQ(count(Counter::fallbacks_length), 1);
  EXPECT_EQ(count(Counter::fallbacks_cut), 0);
  EXPECT_EQ(count(Counter::graph_replays), 4);
  // One graph of each step falls back by the first reason that any of its microbatches has.
  scenario.cuda_graph.impl = GraphImpl::full_iteration;
  EXPECT_EQ(count(Counter::eager_fallbacks), 2);
  EXPECT_EQ(count(Counter::fallbacks_documents), 2);
  EXPECT_EQ(count(Counter::fallbacks_length), 0);
}

TEST(Expectations, EvaluationsAreReplayedAfterWarmUpWhereTheyFit) {
  Scenario scenario;
  scenario.training.eval_every = 1;
  EXPECT_EQ(expected(scenario, Counter::evaluation_replays).max, 0);
  const std::int64_t captured = expected(scenario, Counter::graphs_captured).min;
  scenario.cuda_graph.evaluation = GraphEvaluation::replay;
  // Two regions, two microbatches, the last two of three steps.
  EXPECT_EQ(expected(scenario, Counter::evaluation_replays).min, 8);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).min, 16 + 8);
  EXPECT_EQ(expected(scenario, Counter::graphs_captured).min, captured + 2);
  scenario.cuda_graph.max_seqlen = 33;
  EXPECT_EQ(expected(scenario, Counter::evaluation_replays).min, 6) << "one document of 64 tokens";
}

// The most passes that are open at once, in the orders that the library spells out.
std::int64_t most_open(const Scenario& s) {
  std::int64_t open = 0, most = 0;
  const std::int64_t count = most_microbatches(s.training);
  for (const ScheduledPass& pass : pass_order(stage_schedule(s, 0, count)))
    most = std::max(most, open += pass.forward ? 1 : -1);
  return most;
}

TEST(Expectations, ChunksHaveTheirOwnSlotsInFlightAndInGraphs) {
  Scenario s;
  s.model.pattern = "M-*-M";  // Four blocks.
  for (const auto schedule : {PipelineSchedule::interleaved, PipelineSchedule::gpipe}) {
    for (std::int64_t chunks = 2; chunks <= 4; ++chunks) {
      for (std::int64_t group = 1; group <= 5; ++group) {
        s.training.microbatches = 5;
        s.parallel = {.chunks = chunks, .schedule = schedule, .group = group};
        s.training.in_flight = scheduled_depth(s);
        EXPECT_EQ(expected(s, Counter::max_outstanding).min, most_open(s));
        EXPECT_EQ(expected(s, Counter::slots_live).min, most_open(s));
      }
    }
  }
  s.parallel = {.chunks = 3, .schedule = PipelineSchedule::interleaved, .group = 2};
  s.training.in_flight = scheduled_depth(s);
  s.cuda_graph.modules = {GraphModule::mamba};  // In the first and the last chunk.
  const std::vector<std::int64_t> slots = chunk_slots(s);
  EXPECT_EQ(slots_of_regions(s), slots[0] + slots[2]);
  EXPECT_EQ(expected(s, Counter::graphs_captured).min, 2 * (slots[0] + slots[2]));
}

TEST(Expectations, PassesOfCapturesAreThoseOfEveryRegionSlotAndBucketAtEachCapture) {
  Scenario scenario;
  scenario.training.steps = 4;
  EXPECT_EQ(expected(scenario, Counter::capture_passes).max, 0);
  scenario.fsdp.strategy = Sharding::optim_grads_params;
  const std::int64_t others = expected(scenario, Counter::collectives).min;
  scenario.cuda_graph.capture_passes = 3;
  // Two regions, two slots, both ways.
  EXPECT_EQ(expected(scenario, Counter::capture_passes).min, 3 * 2 * 2 * 2);
  EXPECT_EQ(expected(scenario, Counter::collectives).max, others + 3 * 2 * 2 * 3);
  scenario.training.recapture_at = {2, 3};
  scenario.cuda_graph.max_packed_seqs = {4, 8};
  scenario.cuda_graph.evaluation = GraphEvaluation::replay;
  EXPECT_EQ(expected(scenario, Counter::capture_passes).max, 3 * 3 * 2 * 2 * 2 * 2);
  EXPECT_EQ(expected(scenario, Counter::collectives).max, others + 3 * 2 * 3 * 2 * 2 * 3);
  // What is evicted only the sizes of graphs say.
  scenario.training.in_flight = 1;
  scenario.cuda_graph.graph_memory_limit = 1;
  EXPECT_EQ(expected(scenario, Counter::capture_passes).max,
            std::numeric_limits<std::int64_t>::max());
}

TEST(Expectations, WhatIsNotSavedIsComputedAgainOnceAMicrobatch) {
  Scenario scenario;
  EXPECT_EQ(expected(scenario, Counter::ops_recomputed).max, 0);
  scenario.model.pattern = "M*-E";
  scenario.model.recompute = {Recompute::layernorm, Recompute::mlp_act, Recompute::moe_act};
  EXPECT_EQ(expected(scenario, Counter::ops_recomputed).min,
            6 * (4 + 1 + 1));  // Three steps of two microbatches.
  scenario.model.moe.shared_hidden = 8;
  EXPECT_EQ(expected(scenario, Counter::ops_recomputed).max, 6 * (4 + 1 + 2));
}

TEST(Expectations, WholeModulesAreComputedAgainOpByOp) {
  Scenario scenario;
  scenario.model.pattern = "M*-E";
  const auto ops = [&](Recompute module) {
    scenario.model.recompute = {module};
    return expected(scenario, Counter::ops_recomputed).min / 6;
  };
  EXPECT_EQ(ops(Recompute::core_attn), 1);
  EXPECT_EQ(ops(Recompute::mlp), 2) << "a product, an activation";
  EXPECT_EQ(ops(Recompute::mamba), 4) << "a product, the convolution, the scan, the gated norm";
  EXPECT_EQ(ops(Recompute::moe), 5) << "the router, dispatch, two products, an activation";
  scenario.model.moe.shared_hidden = 8;
  EXPECT_EQ(ops(Recompute::moe), 7);
}

TEST(Expectations, EveryTokenGoesToTopKExperts) {
  Scenario scenario;
  EXPECT_FALSE(is_expected(scenario, Counter::pairs_routed));
  scenario.model.pattern = "*EE";
  scenario.model.moe.top_k = 3;
  scenario.data.documents = {{{20, 0, 30}, {1, 2}}, {{64}, {16, 15, 17}}};
  scenario.training.steps = 3;
  // 53, 112 and 53 tokens.
  EXPECT_EQ(expected(scenario, Counter::pairs_routed).min, 218 * 3 * 2);
  EXPECT_EQ(expected(scenario, Counter::pairs_routed).max, 218 * 3 * 2);
  EXPECT_EQ(expected(scenario, Counter::experts_used).min, 6);
  EXPECT_EQ(expected(scenario, Counter::experts_used).max, 8);
  EXPECT_FALSE(is_expected(scenario, Counter::tokens_dropped));
  scenario.model.moe.capacity_factor.reset();
  scenario.model.moe.host_sync = true;
  EXPECT_EQ(expected(scenario, Counter::tokens_dropped).max, 0);
  EXPECT_EQ(expected(scenario, Counter::expert_rows_read).min, 3 * 2 * 2)
      << "two microbatches a step, two layers";
}

TEST(Expectations, TheHostWaitsNoMoreThanItMust) {
  Scenario scenario;
  EXPECT_EQ(expected(scenario, Counter::host_syncs).min, 0);
  EXPECT_EQ(expected(scenario, Counter::host_syncs).max, 3 * (2 + 2));
  scenario.training.eval_every = 3;
  EXPECT_EQ(expected(scenario, Counter::host_syncs).max, 4 * (2 + 2));
  scenario.cuda_graph.max_packed_seqs = {3};
  EXPECT_EQ(expected(scenario, Counter::host_syncs).max, std::numeric_limits<std::int64_t>::max());
}

TEST(Expectations, WhatIsAskedOfCopiesAndGathersIsCounted) {
  Scenario scenario;
  EXPECT_FALSE(is_expected(scenario, Counter::late_gathers));
  EXPECT_FALSE(is_expected(scenario, Counter::offloads_in_flight));
  EXPECT_EQ(expected(scenario, Counter::offloads_delayed).max, 0);
  scenario.fsdp.strategy = Sharding::optim_grads_params;
  EXPECT_EQ(expected(scenario, Counter::late_gathers).max, 0);
  scenario.fsdp.prefetch = 0;
  EXPECT_EQ(expected(scenario, Counter::late_gathers).min, 1);
  scenario.model.pattern = "*EE";
  scenario.cuda_graph.modules = {GraphModule::attn};
  scenario.offload.modules = {OffloadModule::core_attn, OffloadModule::expert_fc1,
                              OffloadModule::moe_act};
  scenario.offload.max_inflight = 2;
  scenario.offload.delay_until_cuda_graph = true;
  EXPECT_EQ(expected(scenario, Counter::offloads_in_flight).max, 2);
  EXPECT_EQ(expected(scenario, Counter::offloads_delayed).min, 3 * 2 * 4)
      << "two groups in each of two layers";
  EXPECT_EQ(expected(scenario, Counter::spare_buffers).max, 0);
  scenario.offload.pool_slack = 3;
  EXPECT_EQ(expected(scenario, Counter::spare_buffers).min, 3 * 3)
      << "attention's two sizes, and that of both products' inputs";
  scenario.model.moe.hidden *= 2;
  EXPECT_EQ(expected(scenario, Counter::spare_buffers).min, 3 * 4);
}

// Copies are nodes where a microbatch is replayed: here both of two steps after the warm-up.
TEST(Expectations, CapturedCopiesAreCounted) {
  Scenario scenario;
  scenario.model.pattern = "M-M";
  scenario.cuda_graph.modules = {GraphModule::mamba};
  scenario.offload.modules = {OffloadModule::mlp_fc1, OffloadModule::mamba_in_proj};
  scenario.offload.max_inflight = 1;
  EXPECT_EQ(expected(scenario, Counter::copies_in_graphs).max, 0);
  scenario.offload.captured = true;
  // Out in the forward pass of each layer M. Back one segment ahead, which is the head and the MLP.
  const std::int64_t row = scenario.data.pack_length * scenario.model.hidden * 4;
  EXPECT_EQ(offload_demand(scenario).copies_in_graphs, 2);
  EXPECT_EQ(expected(scenario, Counter::copies_in_graphs).min, 2 * 2 * 2);
  EXPECT_EQ(expected(scenario, Counter::copy_bytes_in_graphs).min, 2 * 2 * 2 * row);
  scenario.parallel.data = 2;
  EXPECT_EQ(expected(scenario, Counter::copies_in_graphs).min, 2 * 2 * 2 * 2);
  scenario.parallel.data = 1;
  scenario.offload.fraction = Ratio{300'000};  // The first group alone.
  EXPECT_EQ(expected(scenario, Counter::copies_in_graphs).min, 2 * 2);
  // Behind whole layers copies back are nodes of the graph before.
  scenario.offload = {};
  scenario.cuda_graph.modules = {};
  scenario.offload.modules = {OffloadModule::mamba_in_proj};
  scenario.offload.max_inflight = 1;
  scenario.offload.captured = true;
  EXPECT_EQ(offload_demand(scenario).copies_in_graphs, 2 + 1);
  EXPECT_EQ(offload_demand(scenario).bytes_in_graphs, 3 * row);
}

Scenario fallback_mix() {
  Scenario scenario;
  scenario.data.documents = {{{20, 0, 30}, {1, 2, 3, 4}}, {{64}, {16, 15, 17}}};
  scenario.training.steps = 4;
  scenario.cuda_graph.max_packed_seqs = {3};
  return scenario;
}

TEST(Expectations, AMicrobatchOfTooManyDocumentsFallsBack) {
  EXPECT_EQ(expected(fallback_mix(), Counter::eager_fallbacks).min, 1);
  EXPECT_EQ(expected(fallback_mix(), Counter::eager_fallbacks).max, 1);
  EXPECT_EQ(expected(fallback_mix(), Counter::graph_replays).min, 20);
}

TEST(Expectations, UnderFullIterationAStepFallsBack) {
  Scenario scenario = fallback_mix();
  scenario.cuda_graph.impl = GraphImpl::full_iteration;
  EXPECT_EQ(graph_regions(scenario), 1);
  EXPECT_EQ(expected(scenario, Counter::eager_fallbacks).min, 1);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).max, 2);
  scenario.training.eval_every =
      1;  // For the four evaluations step 0 is warm-up and step 2 does not fit.
  EXPECT_EQ(expected(scenario, Counter::evaluations).min, 4);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).max, 4);
}

TEST(Expectations, RegionsAreBlocksWithACapturedPart) {
  Scenario scenario;
  scenario.model.pattern = "M-M*-";
  EXPECT_EQ(graph_regions(scenario), 4);
  scenario.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
  EXPECT_EQ(graph_regions(scenario), 3);
  EXPECT_EQ(captured_symbols(scenario, {3, 2}), std::vector<int>{3});
  scenario.cuda_graph.impl = GraphImpl::none;
  EXPECT_EQ(graph_regions(scenario), 0);
}

TEST(Expectations, HybridInFlightThree) {  // The second example of the schema.
  Scenario scenario;
  scenario.model.pattern = "M-M*-";
  scenario.training.steps = 5;
  scenario.training.microbatches = 4;
  scenario.training.in_flight = 3;
  scenario.training.eval_every = 2;
  scenario.training.recapture_at = {3};
  scenario.cuda_graph.modules = {GraphModule::attn, GraphModule::mamba};
  EXPECT_EQ(expected(scenario, Counter::max_outstanding).min, 3);
  EXPECT_EQ(expected(scenario, Counter::max_outstanding).max, 3);
  EXPECT_EQ(expected(scenario, Counter::evaluations).max, 2);
  EXPECT_EQ(expected(scenario, Counter::recaptures).min, 1);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).min, 4 * 4 * 3 * 2);
  EXPECT_EQ(expected(scenario, Counter::graphs_captured).min, 2 * 3 * 2 * 3);
}

TEST(Expectations, EachResumeIsCounted) {
  Scenario scenario;
  scenario.training.resume_at = {{.step = 1}, {.step = 2}};
  EXPECT_EQ(expected(scenario, Counter::resumes).min, 2);
  EXPECT_EQ(expected(scenario, Counter::resumes).max, 2);
}

TEST(Expectations, AChangedCountOfMicrobatchesCounts) {
  Scenario scenario;
  scenario.training.change_microbatches_at = {{2, 3}};
  EXPECT_EQ(expected(scenario, Counter::graph_replays).min, (2 + 3) * 2 * 2);
}

// All ranks take the same way, so a microbatch falls back with any rank's of its number.
TEST(Expectations, OneRanksDocumentsDecideForAll) {
  Scenario scenario = fallback_mix();  // Counts 3, 4 in even steps, 1, 3 in odd ones.
  scenario.parallel.data = 2;
  scenario.training.microbatches = 1;
  EXPECT_EQ(expected(scenario, Counter::eager_fallbacks).min, 1);  // Step 2; step 0 is warm-up.
  EXPECT_EQ(expected(scenario, Counter::graph_replays).min, 2 * 2 * 2);
  scenario.training.microbatches =
      2;  // Numbers 0 to 3: every microbatch of an even step has a rank with 4 documents.
  EXPECT_EQ(expected(scenario, Counter::eager_fallbacks).min, 2);
  EXPECT_EQ(expected(scenario, Counter::graph_replays).min, 2 * 2 * 4);
}

TEST(Expectations, WhatMovesAddsUpOverRanks) {
  Scenario scenario;
  scenario.offload.modules = {OffloadModule::core_attn};
  const std::int64_t one = expected(scenario, Counter::bytes_planned).min;
  scenario.parallel.data = 3;
  EXPECT_EQ(expected(scenario, Counter::bytes_planned).min, 3 * one);
}

// Documents that a scenario does not give.
class Changed : public Lengths {
 public:
  using Change = std::function<void(std::int64_t step, StepData& data)>;
  Changed(const Scenario& scenario, Change change)
      : Lengths(scenario), change_(std::move(change)) {}
  StepData training(std::int64_t step) const override {
    StepData data = Lengths::training(step);
    change_(step, data);
    return data;
  }

 private:
  Change change_;
};

TEST(Expectations, AStepHasATarget) {
  Scenario scenario;
  scenario.training.steps = 3;
  const auto some_with_masked = [&](std::int64_t masked) {
    const Changed data(scenario,
                       [=](std::int64_t step, StepData& d) { d.targets = step < masked ? 0 : 5; });
    return some_step_has_a_target(scenario, data);
  };
  EXPECT_TRUE(some_with_masked(2));
  EXPECT_FALSE(some_with_masked(3));
}

TEST(Expectations, RanksThatSeeTheSameProveNothing) {
  Scenario scenario;
  scenario.parallel.data = 2;
  bool tell_apart = false;
  const Changed data(scenario, [&](std::int64_t, StepData& d) {
    for (Microbatch& microbatch : d.microbatches) microbatch = d.microbatches.front();
    if (tell_apart) d.microbatches[1].documents[0].tokens[0] = 1;
  });
  EXPECT_THAT(ranks_with_the_same_documents(scenario, data), testing::HasSubstr("ranks 0 and 1"));
  tell_apart = true;
  EXPECT_EQ(ranks_with_the_same_documents(scenario, data), "");
  tell_apart = false;
  scenario.parallel.data = 1;
  EXPECT_EQ(ranks_with_the_same_documents(scenario, data), "");
}

// A fraction of 0 asks for nothing; what is too small to leave, when something was asked, is
// vacuous.
TEST(Expectations, BytesOffloadedFollowFromTheScenario) {
  Scenario scenario;
  scenario.training.steps = 2;
  EXPECT_EQ(expected(scenario, Counter::bytes_planned).max, 0);
  scenario.offload.modules = {OffloadModule::core_attn, OffloadModule::mlp_fc1};
  const std::int64_t core = 64 * (2 + 2) * 16 * 4 + 64 * 2 * 4, fc1 = 64 * 32 * 4;
  for (const Counter counter :
       {Counter::bytes_planned, Counter::bytes_offloaded, Counter::bytes_reloaded}) {
    EXPECT_EQ(expected(scenario, counter).min, 2 * 2 * (core + fc1));
    EXPECT_EQ(expected(scenario, counter).max, 2 * 2 * (core + fc1));
  }
  scenario.offload.fraction = Ratio{500'000};
  EXPECT_EQ(expected(scenario, Counter::bytes_reloaded).max, 2 * 2 * core);
  scenario.offload.fraction = Ratio{0};
  EXPECT_EQ(expected(scenario, Counter::bytes_reloaded).max, 0);
  scenario.offload.fraction = Ratio{1'000'000};
  scenario.offload.min_bytes = 1'000'000;
  const Counters none{{Counter::bytes_planned, 0}};
  std::vector<Expectation> all = expectations(scenario, Lengths(scenario));
  std::erase_if(all, [](const Expectation& one) { return one.counter != Counter::bytes_planned; });
  EXPECT_NE(unmet(all, none), "");
}

TEST(Expectations, CopiesOfNoTensorAreAskedForInVain) {
  Scenario scenario;
  scenario.cuda_graph.warmup_steps = 1;
  scenario.offload.modules = {OffloadModule::mlp_norm};
  EXPECT_EQ(asked_in_vain(scenario, Lengths(scenario)), "");
  scenario.offload.min_bytes = 1'000'000'000;
  EXPECT_EQ(asked_in_vain(scenario, Lengths(scenario)), "bytes_planned");
}

TEST(Expectations, AScenarioThatReplaysNothingIsVacuousUnlessItSaysSo) {
  Scenario scenario;
  scenario.cuda_graph.max_packed_seqs = {1};
  scenario.data.documents = {{{1, 2}, {3, 4}}};
  const Counters counters{{Counter::graph_replays, 0},        {Counter::eager_fallbacks, 4},
                          {Counter::fallbacks_documents, 4},  {Counter::fallbacks_length, 0},
                          {Counter::fallbacks_cut, 0},        {Counter::evaluation_replays, 0},
                          {Counter::graphs_captured, 8},      {Counter::max_outstanding, 2},
                          {Counter::evaluations, 0},          {Counter::recaptures, 0},
                          {Counter::collectives, 0},          {Counter::persistent_buffers, 0},
                          {Counter::bytes_planned, 0},        {Counter::bytes_offloaded, 0},
                          {Counter::bytes_reloaded, 0},       {Counter::ops_recomputed, 0},
                          {Counter::attention_by_cudnn, 0},   {Counter::collectives_in_graphs, 0},
                          {Counter::offloads_delayed, 0},     {Counter::host_syncs, 12},
                          {Counter::expert_rows_read, 0},     {Counter::ops, 9},
                          {Counter::spare_buffers, 0},        {Counter::graphs_evicted, 0},
                          {Counter::slots_live, 2},           {Counter::copies_in_graphs, 0},
                          {Counter::copy_bytes_in_graphs, 0}, {Counter::capture_passes, 0}};
  EXPECT_EQ(unmet(expectations(scenario, Lengths(scenario)), counters),
            "graph_replays is 0, expected at least 1 (the scenario asks for graphs)");
  scenario.expect.counters[Counter::graph_replays] = {.min = 0, .max = 0};
  EXPECT_EQ(unmet(expectations(scenario, Lengths(scenario)), counters), "");
}

TEST(Expectations, OneLaunchTooFewOrTooManyIsUnmet) {
  const Scenario scenario;
  Counters counters{{Counter::graph_replays, 16},       {Counter::eager_fallbacks, 0},
                    {Counter::fallbacks_documents, 0},  {Counter::fallbacks_length, 0},
                    {Counter::fallbacks_cut, 0},        {Counter::evaluation_replays, 0},
                    {Counter::graphs_captured, 8},      {Counter::max_outstanding, 2},
                    {Counter::evaluations, 0},          {Counter::recaptures, 0},
                    {Counter::collectives, 0},          {Counter::persistent_buffers, 0},
                    {Counter::bytes_planned, 0},        {Counter::bytes_offloaded, 0},
                    {Counter::bytes_reloaded, 0},       {Counter::ops_recomputed, 0},
                    {Counter::attention_by_cudnn, 0},   {Counter::collectives_in_graphs, 0},
                    {Counter::offloads_delayed, 0},     {Counter::host_syncs, 12},
                    {Counter::expert_rows_read, 0},     {Counter::ops, 9},
                    {Counter::spare_buffers, 0},        {Counter::graphs_evicted, 0},
                    {Counter::slots_live, 2},           {Counter::copies_in_graphs, 0},
                    {Counter::copy_bytes_in_graphs, 0}, {Counter::capture_passes, 0}};
  const auto check = [&] { return unmet(expectations(scenario, Lengths(scenario)), counters); };
  EXPECT_EQ(check(), "");
  for (const std::int64_t wrong : {15, 17}) {
    counters[Counter::graph_replays] = wrong;
    EXPECT_THAT(check(), testing::HasSubstr("expected 16"));
  }
  counters.erase(Counter::graph_replays);
  EXPECT_EQ(check(), "the engine does not count graph_replays");
}

TEST(Expectations, AnOpThatIsNotRecomputedIsNamedWithItsLayer) {
  Scenario scenario;
  scenario.model.pattern = "*-ME";
  scenario.model.moe.shared_hidden = 8;
  using enum Recompute;
  scenario.model.recompute = {layernorm, core_attn, mlp, mamba, moe};
  std::int64_t count = 0;
  RecomputedOps seen;
  for (std::int64_t step = 0; step < scenario.training.steps; ++step)
    count += scenario.training.microbatches_at(step);
  for (const auto& [layer, ops] : std::vector<std::pair<int, std::vector<std::string>>>{
           {0, {"rms_norm_forward", "attention_forward"}},
           {1, {"rms_norm_forward", "linear_forward", "activation_forward"}},
           {2,
            {"rms_norm_forward", "linear_forward", "conv_forward", "scan_forward",
             "gated_norm_forward"}},
           {3,
            {"rms_norm_forward", "router_forward", "dispatch", "expert_forward", "expert_forward",
             "activation_forward", "linear_forward", "activation_forward"}}}) {
    for (const std::string& op : ops) seen[{layer, op}] += count;
  }
  EXPECT_EQ(recomputed_otherwise(scenario, 1, seen), "");
  std::int64_t sum = 0;
  for (const auto& [place, times] : seen) sum += times;
  EXPECT_EQ(expected(scenario, Counter::ops_recomputed).min, sum);
  RecomputedOps other = seen;
  other.erase({2, "scan_forward"});
  EXPECT_EQ(recomputed_otherwise(scenario, 1, other),
            "scan_forward of layer 2 ran again 0 times, not " + std::to_string(count));
  other = seen;
  ++other[{3, "expert_forward"}];
  EXPECT_EQ(recomputed_otherwise(scenario, 1, other),
            "expert_forward of layer 3 ran again " + std::to_string(2 * count + 1) +
                " times, not " + std::to_string(2 * count));
  other = seen;
  other[{1, "rope"}] = 1;
  EXPECT_EQ(recomputed_otherwise(scenario, 1, other), "rope of layer 1 ran again 1 times, not 0");
  // Two ranks run each op twice as often.
  EXPECT_NE(recomputed_otherwise(scenario, 2, seen), "");
}

// A graph that is launched twice counts its recomputed ops twice; the launch is what was wrong.
TEST(Expectations, ALaunchTooManyIsNamedBeforeWhatItCounts) {
  Scenario scenario;
  scenario.model.recompute = {Recompute::mlp};
  RunEvidence evidence;
  evidence.checker = CheckerEvidence{.ranks = 1, .launches = 16};
  const Lengths data(scenario);
  Counters counters;
  for (const Expectation& one : expectations_of_run(scenario, data, evidence))
    counters[one.counter] = one.min;
  const auto check = [&] { return unmet(expectations_of_run(scenario, data, evidence), counters); };
  EXPECT_EQ(check(), "");
  ASSERT_GT(counters[Counter::ops_recomputed], 0);
  ++counters[Counter::ops_recomputed];
  EXPECT_THAT(check(), testing::StartsWith("ops_recomputed is "));
  ++evidence.checker->launches;
  EXPECT_EQ(check(),
            "graph_replays is 16, expected 17 (so many launches of a rank were seen at the device "
            "door)");
  // A count of its own that is wrong comes first: it needs no device to be seen.
  counters[Counter::graph_replays] = 15;
  EXPECT_THAT(check(), testing::StartsWith("graph_replays is 15, expected 16 (2 regions"));
}

TEST(CounterRules, ExactRangeAndSame) {
  const Counters counters{{Counter::ops, 3}, {Counter::recaptures, 3}, {Counter::collectives, 4}};
  EXPECT_EQ(unmet({{Counter::ops, {.min = 3, .max = 3}}}, counters), "");
  EXPECT_EQ(unmet({{Counter::ops, {.min = 4, .max = 4}}}, counters),
            "ops is 3, the file expects 4");
  EXPECT_EQ(unmet({{Counter::ops, {.min = 4, .max = {}}}}, counters),
            "ops is 3, the file expects at least 4");
  EXPECT_EQ(unmet({{Counter::ops, {.min = {}, .max = 2}}}, counters),
            "ops is 3, the file expects at most 2");
  EXPECT_EQ(
      unmet({{Counter::ops, {.min = {}, .max = {}, .same_as = Counter::recaptures}}}, counters),
      "");
  EXPECT_EQ(
      unmet({{Counter::ops, {.min = {}, .max = {}, .same_as = Counter::collectives}}}, counters),
      "ops is 3, the file expects collectives, 4");
  EXPECT_EQ(unmet({{Counter::evaluations, {.min = 0, .max = {}}}}, counters),
            "the engine does not count evaluations");
  EXPECT_EQ(unmet({{Counter::ops, {.min = 4, .max = {}}},
                   {Counter::collectives, {.min = 5, .max = 5}},
                   {Counter::recaptures, {.min = 3, .max = 3}}},
                  counters),
            "collectives is 4, the file expects 5; ops is 3, the file expects at least 4");
}

}  // namespace
}  // namespace lockstep
