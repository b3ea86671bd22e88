// Cases whose judges do what their names say, so that a suite meets crashes, hangs and what one
// case leaves for the next.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "harness/judge/local_ranks.h"
#include "harness/judge/runner.h"
#include "harness/run/multi_process_case.h"
#include "harness/verify/suite_run.h"
#include "tests/support/program.h"

namespace lockstep {

class Suite : public testing::Test {
 protected:
  struct Line {
    std::string name;
    int rank;
    pid_t process;
  };

  PlannedCase planned(const std::string& name, int ranks = 1, const std::string& transport = "shm",
                      const std::string& more = "") const {
    const std::string several =
        "parallel: {data: " + std::to_string(ranks) + ", transport: " + transport + "}\n" + more;
    std::vector<ScenarioError> errors;
    return plan_file(folder_.file(name + ".yaml",
                                  "schema: 1\nname: " + name + "\n" + (ranks > 1 ? several : "")),
                     false, errors)
        .at(0);
  }
  std::vector<PlannedCase> all_planned(const std::vector<std::string>& names) const {
    std::vector<PlannedCase> list;
    for (const std::string& name : names) list.push_back(planned(name));
    return list;
  }

  // Each line: who judged what in which process.
  void note(const Scenario& scenario, const RunOptions& run) const {
    std::ofstream(folder_ / "log", std::ios::app)
        << scenario.name + " " + std::to_string(run.ranks != nullptr ? run.ranks->first() : -1) +
               " " + std::to_string(::getpid()) + "\n"
        << std::flush;
  }
  std::vector<Line> lines() const {
    std::vector<Line> list;
    std::istringstream log(slurp(folder_ / "log"));
    for (Line one; log >> one.name >> one.rank >> one.process;) list.push_back(one);
    return list;
  }
  std::vector<Line> lines_of(const std::string& name) const {
    std::vector<Line> list;
    for (const Line& one : lines()) {
      if (one.name == name) list.push_back(one);
    }
    return list;
  }

  CaseResult judged(const Scenario& scenario, const RunOptions& run) const {
    static bool dirty = false;
    if (run.ranks == nullptr && wants_processes(scenario))
      return run_case_in_processes(scenario, run);
    note(scenario, run);
    const std::string& name = scenario.name;
    CaseResult result = unjudged_case(scenario, run);
    if (name.starts_with("crash")) std::abort();
    if (name.starts_with("loses-rank-1") && run.ranks->first() == 1) std::abort();
    while (name.starts_with("hang")) ::pause();
    if (name.starts_with("fails") || (name.starts_with("victim") && dirty)) {
      result.verdict = Verdict::violated;
      result.judge = JudgeKind::loss;
      result.reason = "in process " + std::to_string(::getpid());
    }
    dirty = dirty || name.starts_with("dirty");
    return result;
  }

  // Fills `results_` and says how the suite ended.
  SuiteEnd run(const std::vector<PlannedCase>& cases, SuiteOptions options = {}) {
    options.judge = [this](const Scenario& scenario, const RunOptions& own) {
      return judged(scenario, own);
    };
    return run_judged(cases, options);
  }
  SuiteEnd run_judged(const std::vector<PlannedCase>& cases, const SuiteOptions& options) {
    results_.clear();
    return run_suite(cases, options,
                     {[&](std::size_t number, const CaseResult& result) {
                        results_.insert_or_assign(number, result);
                      },
                      [](const auto&) {}});
  }

  const TemporaryFolder folder_;
  std::map<std::size_t, CaseResult> results_;
};

}  // namespace lockstep
