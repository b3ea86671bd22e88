// The judge of costs: rows, growth of memory, and that the library's rows are those of its
// scenarios.
#include "harness/costs/costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>

#include "harness/case/schedules.h"
#include "harness/costs/cost_counter.h"
#include "harness/expect/expectations.h"
#include "harness/expect/recomputed_ops.h"
#include "harness/judge/thread_ranks.h"
#include "harness/run/library.h"
#include "harness/run/multi_process_case.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "kernels/core/at.h"
#include "scenarios/io/reader.h"
#include "tests/support/program.h"
#include "tests/support/tree.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Costs, RowsReadBackAsWritten) {
  const std::vector<CostRow> rows{{"b", "fp32", "0123", {{"ops", {{"adamw", 3}, {"rope", 1}}}}},
                                  {"a", "bf16", "4567", {{"calls", {{"waits", 12}}}}}};
  const std::string text = to_text(rows);
  EXPECT_THAT(text, HasSubstr("\na bf16 4567\n  calls: waits 12\n"));
  EXPECT_THAT(text, HasSubstr("\nb fp32 0123\n  ops: adamw 3 rope 1\n"));
  const std::vector<CostRow> read = cost_rows(text);
  ASSERT_EQ(read.size(), 2);
  EXPECT_EQ(to_text(read), text);
}

TEST(Costs, ABadLineIsNamed) {
  const auto error = [](const std::string& text) {
    try {
      static_cast<void>(cost_rows(text));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error("\na fp32\n"), HasSubstr("line 2"));
  EXPECT_THAT(error("  ops: adamw 3\n"), HasSubstr("line 1: no scenario"));
  EXPECT_THAT(error("a fp32 0\n  ops: adamw x\n"), HasSubstr("line 2: no number of adamw"));
  EXPECT_THAT(error("a fp32 0\n  adamw 3\n"), HasSubstr("line 2: no group"));
}

TEST(Costs, TheFirstDifferenceIsASentence) {
  const Costs want{{"calls", {{"waits", 12}}}, {"ops", {{"rope", 2}}}};
  EXPECT_EQ(difference(want, want), "");
  EXPECT_EQ(difference({{"calls", {{"waits", 13}}}, {"ops", {{"rope", 2}}}}, want),
            "calls waits is 13, 12 in costs.txt");
  EXPECT_EQ(difference({{"calls", {{"waits", 12}}}}, want), "ops rope is 0, 2 in costs.txt");
  EXPECT_EQ(difference({{"calls", {{"fills", 1}, {"waits", 12}}}, {"ops", {{"rope", 2}}}}, want),
            "calls fills is 1, 0 in costs.txt");
}

// Two kinds of steps in turn, graphs captured in step 1: from step 2 on all is there.
TEST(Costs, EqualStepsHaveEqualMemory) {
  Scenario scenario;
  scenario.data.documents = {{{4}}, {{5}}};
  scenario.training.steps = 6;
  EXPECT_EQ(memory_growth(scenario, {.device = {9, 20, 30, 30, 30, 30}, .pinned = {}}), "");
  EXPECT_THAT(memory_growth(scenario, {.device = {9, 20, 30, 30, 31, 31}, .pinned = {}}),
              HasSubstr("device memory is 31 bytes after step 4 and was 30 after step 2"));
  EXPECT_THAT(memory_growth(scenario, {.device = {}, .pinned = {1, 1, 1, 1, 1, 2}}),
              HasSubstr("pinned memory is 2 bytes after step 5"));
  EXPECT_THAT(memory_growth(scenario, {.objects = {1, 1, 2, 2, 3, 3}}),
              HasSubstr("the number of streams, events and graphs is 3 after step 4 and was 2 "
                        "after step 2"));
  scenario.cuda_graph.max_packed_seqs = {1};  // Overflow tables grow for a period more.
  EXPECT_EQ(memory_growth(scenario, {.device = {9, 20, 30, 30, 31, 31}, .pinned = {}}), "");
  EXPECT_THAT(memory_growth(scenario, {.device = {9, 20, 30, 30, 31, 31, 31, 32}, .pinned = {}}),
              HasSubstr("device memory is 32 bytes after step 7"));
  scenario.cuda_graph.max_packed_seqs = {8};
  scenario.training.recapture_at = {3};
  EXPECT_EQ(memory_growth(scenario, {.device = {9, 20, 30, 30, 31, 31}, .pinned = {}}), "");
  scenario.training.recapture_at = {};
  scenario.cuda_graph.graph_memory_limit = 1;
  EXPECT_EQ(memory_growth(scenario, {.device = {9, 20, 30, 30, 31, 31}, .pinned = {}}), "");
}

// An allocation of equal size in each step is no growth while the one before it goes.
TEST(Costs, MemoryThatGrewIsNamedByWhereItWasMade) {
  Scenario scenario;
  scenario.data.documents = {{{4}}};
  scenario.training.steps = 4;
  scenario.cuda_graph.impl = GraphImpl::none;
  CostCounter counter;
  std::array<char, 16> memory{};
  std::size_t next = 0;
  const auto allocate = [&](std::size_t bytes, const StepLocation& place) {
    counter.on_call({AllocateCall{.memory = &at(memory, next++), .bytes = bytes}, 0, place});
  };
  allocate(100, {});
  for (int step = 0; step < 3; ++step) {
    allocate(8, {.step = step, .microbatch = 0, .layer = 2, .part = "qkv", .backward = true});
    if (step > 0)
      counter.on_call({ReleaseCall{.memory = &at(memory, next - 3)}, 0, {.step = step}});
    counter.enter_evaluation(0);
    allocate(5, {.step = step});
  }
  counter.close(0);
  EXPECT_EQ(memory_growth(scenario, counter.step_memory()),
            "device memory is 118 bytes after step 1 and was 113 after step 0, which did the same; "
            "grown by 5 bytes from an evaluation");
  StepMemory grown{.device = {8, 8}, .objects = {1, 2}};
  grown.objects_from = {{{"the start", 1}},
                        {{"the start", 1}, {"a backward pass, layer 2, qkv", 1}}};
  EXPECT_EQ(memory_growth(scenario, grown),
            "the number of streams, events and graphs is 2 after step 1 and was 1 after step 0, "
            "which did the same; grown by 1 from a backward pass, layer 2, qkv");
}

TEST(Costs, MemoryThatAnEvaluationKeepsIsNamedSo) {
  const TemporaryFolder folder;
  const std::string file = folder.file("case.yaml",
                                       "schema: 1\nname: equal-steps\nnumerics: [fp32]\n"
                                       "data: {documents: [[[5], [3, 2]]]}\n"
                                       "training: {steps: 4, eval_every: 1}\n");
  const Ran ran =
      run_lockstep("verify --quiet --device sim --plant evaluation-keeps-memory " + file);
  EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("which did the same; grown by 256 bytes from an evaluation\n"));
}

// In graphs and without, on several ranks, beside passes before a capture.
TEST(Costs, OpsThatRunAgainAreThoseThatTheScenarioSays) {
  int tried = 0;
  for (const std::string& file : scenario_files(library_path())) {
    ReadResult read = read_scenario_file(file);
    if (!read.ok() || read.scenario.model.recompute.empty() || wants_processes(read.scenario))
      continue;
    SCOPED_TRACE(file);
    Scenario& scenario = read.scenario;
    scenario.numerics.resize(1);
    const auto data = open_data(scenario);
    CostCounter counter;
    Device device(open_sim(sim_options(scenario, 1)), &counter, pressure_of(scenario));
    const auto unlooked = [](int) -> TrainerOptions { return {.dry_run_ledger = false}; };
    train_to_the_end(device, scenario, *data, unlooked, [](ThreadRank&) {});
    const std::int64_t ranks = scenario.parallel.data;
    EXPECT_EQ(recomputed_otherwise(scenario, ranks, counter.recomputed()), "");
    RecomputedOps fewer = counter.recomputed();
    ASSERT_FALSE(fewer.empty());
    --fewer.begin()->second;
    EXPECT_NE(recomputed_otherwise(scenario, ranks, fewer), "");
    ++tried;
  }
  EXPECT_GT(tried, 8);
}

TEST(Costs, AnOpThatDoesNotRunAgainIsNamed) {
  const TemporaryFolder folder;
  const std::string file = folder.file("case.yaml",
                                       "schema: 1\nname: again\nnumerics: [fp32]\n"
                                       "model: {pattern: 'M*', recompute: [core_attn]}\n"
                                       "data: {documents: [[[2]]]}\n"
                                       "training: {steps: 2, microbatches: 1, in_flight: 1}\n");
  const Ran ran =
      run_lockstep("verify --quiet --device sim --plant recompute-of-attention-left-out " + file);
  EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("ops_recomputed is 0, expected 2 (model.recompute); "
                                 "attention_forward of layer 1 ran again 0 times, not 2\n"));
}

TEST(Costs, TheDigestLeavesOutWhatCostsNothing) {
  const Scenario scenario;
  Scenario other = scenario;
  other.name = "another";
  other.checker.schedule.seed = 7;
  other.expect.counters[Counter::ops].min = 1;
  EXPECT_EQ(cost_digest(other), cost_digest(scenario));
  other.training.steps += 1;
  EXPECT_NE(cost_digest(other), cost_digest(scenario));
}

// Every scenario of the library that the simulated device can run has a row of its present form.
TEST(Costs, TheLibraryHasItsRows) {
  std::vector<ScenarioError> errors;
  int compared = 0;
  for (const std::string& file : library_files()) {
    const std::string folder = std::filesystem::path(file).parent_path().string();
    if (folder.find("/library") == std::string::npos) continue;  // Regressions need none.
    const std::vector<CostRow> rows = cost_rows_in(folder);
    for (PlannedCase& one : plan_file(file, true, errors)) {
      decide_what_is_lacking(one, "sim");
      if (one.decided || one.scenario.expect.verdict != ExpectedVerdict::holds) continue;
      const std::string digest = cost_digest(one.scenario);
      const bool is_there = std::any_of(rows.begin(), rows.end(), [&](const CostRow& row) {
        return row.name == one.scenario.name && row.digest == digest;
      });
      EXPECT_TRUE(is_there) << file << ": lockstep verify --device sim --update-costs " << folder;
      ++compared;
    }
  }
  EXPECT_GT(compared, 200);
}

// One host wait in each microbatch that falls back changes no bit, and where documents outgrow the
// buckets no counter has a most.
TEST(Costs, AWaitInEachFallbackIsFound) {
  std::vector<ScenarioError> errors;
  std::vector<PlannedCase> cases =
      plan_file(root_path() + "/scenarios/library/graphs/packed-fallback-mix.yaml", true, errors);
  ASSERT_FALSE(cases.empty());
  RunOptions options;
  const WorkerOptions worker{.fork = true, .timeout_s = 60};
  EXPECT_EQ(run_in_worker(cases.front().scenario, options, worker).verdict, Verdict::holds);
  options.planted.engine = "host-waits-in-each-fallback";
  const CaseResult result = run_in_worker(cases.front().scenario, options, worker);
  EXPECT_EQ(result.judge, JudgeKind::costs) << result.reason;
  EXPECT_THAT(result.reason, HasSubstr("host_waits for_stream is"));
}

// The host waits inside of such a copy, so no wait is counted.
TEST(Costs, ACopyToPageableMemoryIsFound) {
  const TemporaryFolder folder;
  const std::string file = folder.file("case.yaml",
                                       "schema: 1\nname: small\nnumerics: [fp32]\n"
                                       "data: {documents: [[[5]]]}\ntraining: {steps: 2}\n");
  EXPECT_EQ(run_lockstep("verify --quiet --device sim " + file).status, 0);
  const Ran ran =
      run_lockstep("verify --quiet --device sim --plant results-in-pageable-memory " + file);
  EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("bytes in step 0 (a step, results) is from or to memory that is "
                                 "not pinned, so that the host waits for it ("));
}

}  // namespace
}  // namespace lockstep
