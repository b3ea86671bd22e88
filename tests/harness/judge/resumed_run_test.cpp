// A run that is saved, destroyed and loaded on its way has the results of one that is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/judge/judged_case.h"
#include "harness/judge/runner.h"
#include "harness/run/worker.h"
#include "scenarios/by_one_rank.h"
#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

Scenario resumed(std::vector<Scenario::Resume> where, std::int64_t ranks) {
  Scenario s;
  s.name = "resumed";
  s.numerics = {Numerics::fp32};
  s.model.pattern = "*E";
  s.model.dropout = Ratio{100'000};
  s.model.moe.router = Router::sigmoid;
  s.model.moe.expert_bias = true;
  s.training.steps = 4;
  s.training.eval_every = 2;
  s.parallel.data = ranks;
  s.fsdp.strategy = Sharding::optim_grads_params;
  s.checker.schedule.count = 1;
  s.training.resume_at = std::move(where);
  return s;
}

TEST(ResumedRun, HoldsBetweenStepsAndWithinOneAndOnOtherRanks) {
  const std::pair<std::vector<Scenario::Resume>, std::int64_t> cases[] = {
      {{{.step = 1}}, 1},
      {{{.step = 2}, {.step = 3}}, 2},
      {{{.step = 0, .microbatch = 1}, {.step = 2, .microbatch = 1}}, 1},
      {{{.step = 1, .microbatch = 2}}, 2},
      {{{.step = 1, .microbatch = 2, .data = 1}, {.step = 2, .data = 4}}, 2}};
  for (const auto& [where, ranks] : cases) {
    const Scenario scenario = resumed(where, ranks);
    SCOPED_TRACE(where.size() * 10 + where.front().microbatch);
    ASSERT_TRUE(check_legality(scenario).empty());
    const CaseResult result = judge_case(scenario, {});
    EXPECT_EQ(result.verdict, Verdict::holds) << result.reason;
    EXPECT_EQ(result.counters.at(Counter::resumes), std::ssize(where));
  }
}

TEST(ResumedRun, IsNotCountedWhereNobodyAsksForIt) {
  EXPECT_FALSE(judge_case(resumed({}, 1), {}).counters.contains(Counter::resumes));
}

// Work of the microbatch that was begun behind the checkpoint may be under way when its memory
// goes.
TEST(ResumedRun, IsDestroyedInTheMiddleOfAStep) {
  RunOptions options;
  options.planted.engine = "trainer-leaves-in-the-middle-of-a-step";
  const WorkerOptions worker{.fork = true, .timeout_s = 60, .echo = false};
  Scenario scenario = resumed({}, 2);
  scenario.training.microbatches = 4;
  EXPECT_EQ(run_in_worker(scenario, options, worker).verdict, Verdict::holds);
  scenario.training.resume_at = {{.step = 1}};
  const CaseResult result = run_in_worker(scenario, options, worker);
  EXPECT_EQ(result.judge, JudgeKind::hazard) << result.reason;
  EXPECT_THAT(result.reason, testing::HasSubstr("destroyed while in use")) << result.reason;
}

// A report is the same in each run, although the files lie in another folder each time.
TEST(ResumedRun, NamesAFileWithoutTheFolderOfTheRun) {
  RunOptions options;
  options.planted.engine = "checkpoint-overwrites-the-valid-one";
  const CaseResult result = run_in_worker(resumed({{.step = 1}, {.step = 2}}, 2), options,
                                          {.fork = true, .timeout_s = 60, .echo = false});
  EXPECT_THAT(result.reason, testing::StartsWith("state.")) << result.reason;
}

// The microbatches of all ranks stay, and so do the documents.
TEST(ResumedRun, SharesTheMicrobatchesAmongOtherRanks) {
  Scenario scenario = resumed({{.step = 1}}, 2);
  scenario.training.microbatches = 6;
  scenario.training.in_flight = 4;
  scenario.training.change_microbatches_at = {{.step = 2, .microbatches = 2}};
  const Scenario four = by_ranks(scenario, 4);
  EXPECT_EQ(four.training.microbatches, 3);
  EXPECT_EQ(four.training.change_microbatches_at.front().microbatches, 1);
  EXPECT_EQ(four.training.in_flight, 1);
  EXPECT_EQ(four.parallel.data, 4);
  EXPECT_TRUE(four.training.resume_at.empty());
  EXPECT_TRUE(divides_microbatches(scenario, 4));
  EXPECT_FALSE(divides_microbatches(scenario, 3));
}

}  // namespace
}  // namespace lockstep
