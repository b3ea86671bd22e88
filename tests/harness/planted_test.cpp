// Every planted fault, in engine, kernels and oracle, breaks at least one scenario of the library.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/library.h"
#include "harness/suite.h"
#include "harness/worker.h"
#include "scenarios/legality.h"
#include "tests/harness/planted_faults.h"
#include "tests/harness/program.h"

namespace lockstep {
namespace {

constexpr WorkerOptions kWorker{.fork = true, .timeout_s = 60};

// The cases of the library that are run, quickest first.
const std::vector<Scenario>& library() {
  static const std::vector<Scenario> cases = [] {
    std::vector<std::pair<double, Scenario>> timed;
    std::vector<ScenarioError> errors;
    for (const std::string& file : scenario_files(library_path())) {
      for (PlannedCase& one : plan_file(file, true, errors)) {
        skip_what_is_lacking(one, "sim");
        if (one.decided || one.scenario.expect.verdict != ExpectedVerdict::holds) continue;
        const CaseResult result = run_in_worker(one.scenario, {}, kWorker);
        EXPECT_EQ(result.verdict, Verdict::holds) << one.scenario.name << ": " << result.reason;
        timed.emplace_back(result.seconds, std::move(one.scenario));
      }
    }
    EXPECT_TRUE(errors.empty()) << text_of(errors);
    std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Scenario> list;
    for (auto& [seconds, scenario] : timed) list.push_back(std::move(scenario));
    return list;
  }();
  return cases;
}

// What only sharded runs can show is not looked for in the others.
bool is_caught(const RunOptions& run) {
  const std::vector<std::string> sharding = sharding_faults();
  const bool of_sharding = holds(sharding, run.fault);
  return std::any_of(library().begin(), library().end(), [&](const Scenario& scenario) {
    if (of_sharding && !with_reduction(scenario)) return false;
    return run_in_worker(scenario, run, kWorker).verdict != Verdict::holds;
  });
}

TEST(PlantedFaults, EachThatShowsIsCaught) {
  ASSERT_GT(faults_that_show().size(), 100u);
  for (const auto& [option, name] : faults_that_show()) {
    RunOptions run;
    (option == "--plant" ? run.fault : run.mutation) = name;
    EXPECT_TRUE(is_caught(run)) << option << " " << name;
  }
}

TEST(PlantedFaults, EachThatChangesNothingSurvives) {
  for (const auto& [name, why] : equivalent_faults()) {
    EXPECT_FALSE(is_caught({.device = "sim", .fault = name, .mutation = ""})) << name << ": " << why;
  }
}

}  // namespace
}  // namespace lockstep
