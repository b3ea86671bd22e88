// Faults that plain bits do not show: each survives its scenario without pressure, and not with it.
#include <gtest/gtest.h>

#include "harness/judge/runner.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

Scenario from_library(const std::string& name) {
  std::vector<ScenarioError> errors;
  Scenario scenario = plan_file(library_file(name), false, errors).front().scenario;
  EXPECT_TRUE(errors.empty());
  return scenario;
}

CaseResult with_fault(const Scenario& scenario, const std::string& fault) {
  return run_in_worker(scenario, {.device = "sim", .planted = {.engine = fault}},
                       {.fork = true, .timeout_s = 60});
}

TEST(PressureFaults, AMissingWaitThatOnlyADelayShows) {
  Scenario scenario = from_library("delayed-loader-unchecked");
  EXPECT_EQ(with_fault(scenario, "compute-ignores-loaded-event").verdict, Verdict::violated);
  scenario.checker.delays.clear();
  EXPECT_EQ(with_fault(scenario, "compute-ignores-loaded-event").verdict, Verdict::holds);
}

TEST(PressureFaults, WhatWasLeftInASlotThatOnlyPoisonShows) {
  Scenario scenario = from_library("poisoned-slots");
  const CaseResult found = with_fault(scenario, "metadata-built-once");
  EXPECT_EQ(found.verdict, Verdict::violated);
  EXPECT_EQ(found.judge, JudgeKind::hazard);
  EXPECT_NE(found.reason.find("it was poisoned before this use"), std::string::npos)
      << found.reason;
  scenario.checker.poison = {Poison::fresh, Poison::freed};
  EXPECT_EQ(with_fault(scenario, "metadata-built-once").verdict, Verdict::holds);
}

TEST(PressureFaults, WhatWasLeftInStagingMemoryThatOnlyPoisonShows) {
  Scenario scenario = from_library("poisoned-staging");
  EXPECT_EQ(with_fault(scenario, "seed-staged-once").judge, JudgeKind::activation);
  scenario.checker.poison = {Poison::fresh, Poison::freed};
  EXPECT_EQ(with_fault(scenario, "seed-staged-once").verdict, Verdict::holds);
}

// Each by itself: one that delays nothing is not made good by one that does.
TEST(Delays, ThatNothingWaitsForAreVacuous) {
  Scenario scenario = from_library("offload-nothing");
  scenario.expect = {};
  scenario.checker.delays = {{.stream = DelayStream::compute, .rank = {}, .spin = 5}};
  EXPECT_EQ(with_fault(scenario, "").verdict, Verdict::holds);
  scenario.checker.delays.push_back({.stream = DelayStream::d2h, .rank = {}, .spin = 5});
  const CaseResult idle = with_fault(scenario, "");
  EXPECT_EQ(idle.judge, JudgeKind::vacuous);
  EXPECT_EQ(idle.reason, "checker.delays[1] delayed nothing (stream d2h)");
  scenario = from_library("fsdp-delayed-exchanges");
  scenario.checker.delays[0].rank = 0;
  EXPECT_EQ(with_fault(scenario, "").verdict, Verdict::holds);
}

// Nobody judges the order, and the run with arithmetic is lucky: a schedule is found by tags and
// confirmed by bits. Its seed is enough to find it again.
TEST(Schedules, AreFoundByTagsAndConfirmedByBits) {
  Scenario scenario = from_library("delayed-loader-unchecked");
  scenario.checker.delays.clear();
  scenario.checker.schedule.kind = ScheduleKind::pct;
  for (std::int64_t seed = 1; seed <= 40; ++seed) {
    scenario.checker.schedule.seed = seed;
    const CaseResult found = with_fault(scenario, "loaded-event-awaited-once");
    if (found.reason.find("on a schedule in which") == std::string::npos) continue;
    EXPECT_EQ(found.verdict, Verdict::violated);
    const CaseResult again = with_fault(scenario, "loaded-event-awaited-once");
    EXPECT_EQ(again.reason, found.reason);
    EXPECT_EQ(again.first_difference, found.first_difference);
    return;
  }
  FAIL() << "no seed was lucky with arithmetic and not by tags";
}

TEST(Schedules, ARunThatIsRightSaysHowManyRan) {
  Scenario scenario = from_library("thousand-schedules");
  const CaseResult result = with_fault(scenario, "");
  EXPECT_EQ(result.verdict, Verdict::holds) << result.reason;
  EXPECT_EQ(result.counters.at(Counter::schedules_explored), 1000);
  EXPECT_NE(result.schedules.find("1000 schedules ran"), std::string::npos) << result.schedules;
}

}  // namespace
}  // namespace lockstep
