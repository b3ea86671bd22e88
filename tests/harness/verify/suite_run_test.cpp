// Workers that live for many cases: a crash or a hang ends one case, and no case is judged by what
// another left behind.
#include "harness/verify/suite_run.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/harness/verify/suite_fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST_F(Suite, CasesShareAProcess) {
  EXPECT_EQ(run(all_planned({"a", "b", "c"})), SuiteEnd::complete);
  std::set<pid_t> processes;
  for (const Line& one : lines()) processes.insert(one.process);
  EXPECT_EQ(processes.size(), 1u);
  EXPECT_FALSE(processes.contains(::getpid()));
  EXPECT_EQ(results_.size(), 3u);
}

TEST_F(Suite, ACrashEndsOneCaseWhichHasRunAlone) {
  EXPECT_EQ(run(all_planned({"a", "crash", "b"})), SuiteEnd::complete);
  EXPECT_EQ(results_.at(0).verdict, Verdict::holds);
  EXPECT_EQ(results_.at(1).verdict, Verdict::broken);
  EXPECT_EQ(results_.at(1).judge, JudgeKind::crash);
  EXPECT_EQ(results_.at(1).reason, "the worker was killed by SIGABRT");
  EXPECT_EQ(results_.at(2).verdict, Verdict::holds);
  const std::vector<Line> crashes = lines_of("crash");
  ASSERT_EQ(crashes.size(), 2u);
  EXPECT_EQ(crashes[0].process, lines_of("a")[0].process);
  EXPECT_NE(crashes[1].process, crashes[0].process);
  EXPECT_NE(crashes[1].process, lines_of("b")[0].process);
}

TEST_F(Suite, ACaseThatIsAloneIsNotRunAgain) {
  EXPECT_EQ(run(all_planned({"crash-1", "crash-2", "fails"})), SuiteEnd::complete);
  EXPECT_EQ(lines().size(), 3u);
}

TEST_F(Suite, AHangEndsOneCaseAndSaysWhereItWaits) {
  SuiteOptions options;
  options.timeout_s = 0.5;
  EXPECT_EQ(run(all_planned({"a", "hang", "b"}), options), SuiteEnd::complete);
  EXPECT_EQ(results_.at(1).judge, JudgeKind::watchdog);
  EXPECT_THAT(results_.at(1).reason,
              HasSubstr("no result within 0.5 s: before its first run, in pause"));
  EXPECT_EQ(results_.at(1).seconds, 0.5);
  EXPECT_EQ(results_.at(2).verdict, Verdict::holds);
  EXPECT_EQ(lines_of("hang").size(), 2u);
}

TEST_F(Suite, AFailureIsToldAsItIsInAProcessOfItsOwn) {
  run(all_planned({"a", "fails"}));
  const std::vector<Line> runs = lines_of("fails");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(results_.at(1).reason, "in process " + std::to_string(runs[1].process));
}

TEST_F(Suite, WhatAnEarlierCaseLeftIsNeitherHiddenNorBlamedOnTheNextAlone) {
  run(all_planned({"a", "dirty", "victim", "victim-2"}));
  EXPECT_EQ(results_.at(2).verdict, Verdict::violated);
  EXPECT_EQ(results_.at(2).judge, JudgeKind::loss);
  EXPECT_THAT(results_.at(2).reason,
              HasSubstr("it held when it ran again alone in a process of its own"));
  EXPECT_THAT(results_.at(2).reason,
              HasSubstr("2 earlier cases left in its process (last: a fp32, dirty fp32)"));
  EXPECT_EQ(results_.at(3).verdict, Verdict::holds);  // In another process.
}

TEST_F(Suite, SeveralWorkersShareTheCases) {
  SuiteOptions options;
  options.jobs = 3;
  std::vector<std::string> names;
  for (int i = 0; i < 30; ++i) names.push_back((i % 10 == 4 ? "crash-" : "a-") + std::to_string(i));
  EXPECT_EQ(run(all_planned(names), options), SuiteEnd::complete);
  ASSERT_EQ(results_.size(), 30u);
  for (const auto& [number, result] : results_) {
    EXPECT_EQ(result.name, names[number]);
    EXPECT_EQ(result.verdict == Verdict::broken, number % 10 == 4) << result.name;
  }
}

TEST_F(Suite, EndsEarlyIfItIsAsked) {
  SuiteOptions options;
  options.fail_fast = true;
  EXPECT_EQ(run(all_planned({"a", "fails", "b"}), options), SuiteEnd::after_a_failure);
  EXPECT_EQ(results_.size(), 2u);
  options.fork = false;
  EXPECT_EQ(run(all_planned({"a", "fails", "b"}), options), SuiteEnd::after_a_failure);
  EXPECT_EQ(results_.size(), 2u);
}

TEST_F(Suite, ExpectedFailuresHaveNoSecondRun) {
  std::vector<PlannedCase> cases = all_planned({"a", "fails", "b"});
  cases[1].scenario.expect.verdict = ExpectedVerdict::violated;
  run(cases);
  EXPECT_EQ(results_.at(1).verdict, Verdict::holds);
  EXPECT_EQ(lines_of("fails").size(), 1u);
  EXPECT_NE(lines_of("b")[0].process, lines_of("fails")[0].process);
}

TEST_F(Suite, RanksStayFromCaseToCase) {
  EXPECT_EQ(run({planned("two-1", 2), planned("two-2", 2), planned("three", 3)}),
            SuiteEnd::complete);
  for (const auto& [number, result] : results_) EXPECT_EQ(result.verdict, Verdict::holds);
  std::map<std::string, std::map<int, pid_t>> of;
  for (const Line& one : lines()) {
    if (one.rank >= 0) of[one.name][one.rank] = one.process;
  }
  EXPECT_EQ(of["two-1"].size(), 2u);
  EXPECT_EQ(of["two-1"], of["two-2"]);
  EXPECT_EQ(of["three"].size(), 3u);
  EXPECT_NE(of["three"][0], of["two-1"][0]);
}

TEST_F(Suite, ALostRankEndsItsTeamAlone) {
  run({planned("two-1", 2), planned("loses-rank-1", 2), planned("two-2", 2)});
  EXPECT_EQ(results_.at(0).verdict, Verdict::holds);
  EXPECT_EQ(results_.at(1).verdict, Verdict::broken);
  EXPECT_THAT(results_.at(1).reason, HasSubstr("rank 1: the worker was killed by SIGABRT"));
  EXPECT_EQ(results_.at(2).verdict, Verdict::holds);
  EXPECT_EQ(lines_of("loses-rank-1").size(), 4u);  // Two runs, the second by new processes.
  EXPECT_NE(lines_of("two-2")[0].process, lines_of("two-1")[0].process);
}

}  // namespace
}  // namespace lockstep
