// The model of captures and evictions, worked out by hand.
#include "harness/expect/graph_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "tests/engine/train/training_run.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

// Two regions, one slot: four graphs a bucket, of which each recorded one call.
constexpr std::int64_t kBucket = 4 * kBytesOfACall;
const auto kOneCall = std::vector<std::int64_t>(100, 1);

Scenario scenario(const std::vector<std::vector<std::vector<std::int64_t>>>& documents,
                  std::int64_t limit) {
  Scenario s;
  s.data.documents = documents;
  s.training.steps = std::ssize(documents);
  s.training.microbatches = std::ssize(documents.front());
  s.training.in_flight = 1;
  s.cuda_graph.warmup_steps = 0;
  s.cuda_graph.max_packed_seqs = {1, 2, 3};
  s.cuda_graph.graph_memory_limit = limit;
  return s;
}

GraphTally tally(const Scenario& s) { return tally_graphs(s, *open_data(s), kOneCall); }

void expect(const Scenario& s, std::int64_t captured, std::int64_t evicted) {
  const GraphTally found = tally(s);
  EXPECT_EQ(found.captured, captured);
  EXPECT_EQ(found.evicted, evicted);
}

TEST(GraphMemory, WithoutALimitEveryBucketIsCapturedOnce) {
  expect(scenario({{{5}, {5, 5}}, {{5, 5, 5}, {5}}}, 0), 12, 0);
}

TEST(GraphMemory, ALimitThatHoldsAllEvictsNothing) {
  expect(scenario({{{5}, {5, 5}}, {{5, 5, 5}, {5}}}, 3 * kBucket), 12, 0);
}

// Captured 0 1 2, of which 0 goes; then buckets 0 (1 goes), 1 (2 goes), 2 (0 goes), 0 (1 goes).
TEST(GraphMemory, TheBucketUsedLeastRecentlyGoes) {
  const Scenario s = scenario({{{5}, {5, 5}}, {{5, 5, 5}, {5}}}, 3 * kBucket - 1);
  expect(s, 12 + 4 * 4, 4 + 4 * 4);
  EXPECT_EQ(tally(s).buckets, 3 + 4);
}

// Step 0 evicts three buckets and keeps two, step 1 evicts two: what goes is there until its step
// has ended.
TEST(GraphMemory, WhatIsEvictedIsThereUntilTheNextStep) {
  const Scenario s = scenario({{{5}, {5, 5}}, {{5, 5, 5}, {5}}}, 3 * kBucket - 1);
  EXPECT_EQ(tally(s).alive, (std::vector<std::int64_t>{5 * 4, 4 * 4}));
  const auto data = open_data(s);
  const auto unexpected = [&](std::int64_t ranks, const std::vector<std::int64_t>& seen,
                              const std::map<int, std::vector<std::int64_t>>& calls) {
    return unexpected_graphs(s, *data, ranks, seen, calls);
  };
  EXPECT_EQ(unexpected(1, {20, 16}, {{0, kOneCall}}), "");
  EXPECT_THAT(unexpected(1, {20, 28}, {{0, kOneCall}}),
              testing::StartsWith("the number of graphs is 28 after step 1, expected 16"));
  EXPECT_EQ(unexpected(1, {20, 28}, {}), "") << "under a limit sizes are needed";
}

TEST(GraphMemory, GraphsAreCountedWithoutALimitToo) {
  Scenario s = scenario({{{5}, {5, 5}}, {{5, 5, 5}, {5}}, {{5}, {5}}}, 0);
  s.cuda_graph.warmup_steps = 1;
  const auto data = open_data(s);
  EXPECT_EQ(unexpected_graphs(s, *data, 2, {0, 24, 24}, {}), "");
  EXPECT_NE(unexpected_graphs(s, *data, 2, {8, 24, 24}, {}), "");
  s.cuda_graph.impl = GraphImpl::none;
  EXPECT_EQ(unexpected_graphs(s, *data, 2, {0, 0, 0}, {}), "");
  EXPECT_NE(unexpected_graphs(s, *data, 2, {0, 0, 1}, {}), "");
}

// Captured 0 1 2, of which 2 stays; then 2, 2, 0, 0: one change.
TEST(GraphMemory, OneBucketAtATimeWhateverItTakes) {
  expect(scenario({{{5, 5, 5}, {5, 5, 5}}, {{5}, {5}}}, 1), 12 + 4, 8 + 4);
}

// Two in flight: F2 F0 B2 B0 with one bucket at a time changes before each pass but the first.
TEST(GraphMemory, PassesTakeTurnsAsDeepAsTheScenarioSays) {
  Scenario s = scenario({{{5, 5, 5}, {5}}}, 1);
  s.training.in_flight = 2;
  expect(s, 8 * (3 + 3), 8 * (2 + 3));
}

// Six buckets of chunks are captured with two graphs each, and the last one stays. Step 0 needs
// F0 F1 B1 B0 of bucket 0: three changes; step 1 begins with what is there.
TEST(GraphMemory, ChunksEvictEachOther) {
  Scenario s = scenario({{{5}}, {{5}}}, 1);
  s.parallel.chunks = 2;
  s.parallel.schedule = PipelineSchedule::gpipe;
  expect(s, 12 + 6 + 4, 10 + 6 + 4);
  s.cuda_graph.max_packed_seqs = {1};
  expect(s, 4 + 6 + 4, 2 + 6 + 4);
  s.cuda_graph.graph_memory_limit = kBucket;  // Both chunks.
  expect(s, 4, 0);
}

// Each stage has one of the two regions, and a limit of its own: only buckets go.
TEST(GraphMemory, EachStageHasALimitOfItsOwn) {
  Scenario s = scenario({{{5}}, {{5, 5}}}, kBucket / 2);
  s.parallel.pipeline = 2;
  const auto data = open_data(s);
  for (const std::int64_t stage : {0, 1}) {
    const GraphTally one = tally_graphs(s, *data, kOneCall, stage);
    EXPECT_EQ(one.captured, 2 * (3 + 2));
    EXPECT_EQ(one.evicted, 2 * (2 + 2));
    EXPECT_EQ(one.buckets, 3 + 2);
  }
  const std::map<int, std::vector<std::int64_t>> calls{{0, kOneCall}, {1, kOneCall}};
  EXPECT_EQ(unexpected_graphs(s, *data, 1, {2 * 2 * 4, 2 * 2 * 2}, calls), "");
  EXPECT_NE(unexpected_graphs(s, *data, 1, {2 * 2 * 4, 2 * 2 * 3}, calls), "");
}

TEST(GraphMemory, WhatFallsBackUsesNoBucket) {
  expect(scenario({{{5, 5, 5}, {5, 5, 5, 5}}, {{5, 5, 5}, {5, 5, 5, 5}}}, 1), 12, 8);
}

// Torn down graphs are captured again, and are not evicted: 0 and 1 go in both rounds, 2 only for
// what is used then.
TEST(GraphMemory, ARecaptureBeginsAgain) {
  Scenario s = scenario({{{5, 5, 5}}, {{5, 5, 5}}}, 1);
  s.training.recapture_at = {1};
  expect(s, 24, 16);
}

// One graph a step and one an evaluation: bucket 2 trains, 0 trains and 2 goes, and the evaluation
// is of the same step.
TEST(GraphMemory, AWholeStepIsOneGraph) {
  Scenario s = scenario({{{5, 5, 5}, {5}}, {{5}, {5}}, {{5}, {5}}}, 1);
  s.cuda_graph.impl = GraphImpl::full_iteration;
  s.training.eval_every = 1;
  expect(s, 4, 2);
  s.cuda_graph.graph_memory_limit = 4 * kBytesOfACall;
  expect(s, 4, 0);
  s.training.change_microbatches_at = {
      {2, 1}};  // Another count is another graph, of training and of evaluation.
  expect(s, 6, 2);
}

// The second bucket's graphs recorded three calls each. The model takes them for one each, as the
// first bucket's are, so it evicts nothing where the engine, with 20 calls, would.
TEST(GraphMemory, ALaterGraphSaysNothingOfItsSize) {
  const Scenario s = scenario({{{5}, {5, 5}}}, 3 * kBucket);
  std::vector<std::int64_t> calls(12, 1);
  std::fill(calls.begin() + 4, calls.begin() + 8, 3);
  EXPECT_EQ(tally_graphs(s, *open_data(s), calls).evicted, 0);
  std::fill(calls.begin(), calls.begin() + 4, 3);  // Those of the first bucket hold for all.
  EXPECT_EQ(tally_graphs(s, *open_data(s), calls).evicted, 16);
}

// Judges hold on to what graphs recorded, never to a graph: it is evicted and destroyed as if
// nobody looked.
TEST(GraphMemory, JudgesKeepNoGraph) {
  std::vector<ScenarioError> errors;
  for (const char* name : {"graph-memory-limit", "graph-memory-limit-full-iteration"}) {
    std::vector<PlannedCase> cases = plan_file(library_file(name), true, errors);
    ASSERT_FALSE(cases.empty());
    Scenario judged = cases.front().scenario, alone = judged;
    alone.checker.hazards = false;
    const WorkerOptions worker{.fork = true, .timeout_s = 60};
    const CaseResult with = run_in_worker(judged, {}, worker);
    const CaseResult without = run_in_worker(alone, {}, worker);
    ASSERT_EQ(with.verdict, Verdict::holds) << with.reason;
    ASSERT_EQ(without.verdict, Verdict::holds) << without.reason;
    for (const Counter counter :
         {Counter::graphs_captured, Counter::graphs_evicted, Counter::graph_replays})
      EXPECT_EQ(with.counters.at(counter), without.counters.at(counter)) << name;
    EXPECT_GT(with.counters.at(Counter::graphs_evicted), 0) << name;
    for (const char* group : {"calls", "memory"})
      EXPECT_EQ(with.costs.at(group), without.costs.at(group)) << name << " " << group;
  }
}

TEST(GraphMemory, BeforeTheEndOfTheWarmUpNothingIsCaptured) {
  Scenario s = scenario({{{5}}, {{5}}}, 1);
  s.cuda_graph.warmup_steps = 2;
  expect(s, 0, 0);
  s.cuda_graph.impl = GraphImpl::none;
  expect(s, 0, 0);
}

}  // namespace
}  // namespace lockstep
