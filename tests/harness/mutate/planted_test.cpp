// The list of faults that change nothing which a run can show. That every other one is caught is
// for `lockstep mutate`.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>

#include "harness/run/library.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "tests/harness/mutate/planted_faults.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

// The cases of the library that are run.
std::vector<Scenario> library() {
  std::vector<Scenario> cases;
  std::vector<ScenarioError> errors;
  for (const std::string& file : scenario_files(library_path())) {
    for (PlannedCase& one : plan_file(file, true, errors)) {
      decide_what_is_lacking(one, "sim");
      if (!one.decided && one.scenario.expect.verdict == ExpectedVerdict::holds)
        cases.push_back(one.scenario);
    }
  }
  EXPECT_TRUE(errors.empty()) << text_of(errors);
  return cases;
}

CaseResult planted(const Scenario& scenario, const std::string& fault, bool costs) {
  return run_in_worker(scenario, {.device = "sim", .planted = {.engine = fault}, .costs = costs},
                       {.fork = true, .timeout_s = 60});
}

// One wait or synchronisation less than the row has, which changes no result: a golden row counts
// every call, also those that other orders make redundant.
bool only_spares(const std::string& spares, const CaseResult& result) {
  std::istringstream words(result.reason);
  std::string group, name, is;
  std::int64_t got = 0, want = 0;
  char comma = ' ';
  const bool counted = static_cast<bool>(words >> group >> name >> is >> got >> comma >> want);
  return result.verdict == Verdict::violated && result.judge == JudgeKind::costs && counted &&
         group + " " + name == spares && got < want;
}

TEST(PlantedFaults, EachThatChangesNothingSurvives) {
  const std::vector<Scenario> cases = library();
  ASSERT_GT(cases.size(), 50u);
  for (const auto& [name, fault] : equivalent_faults()) {
    int named = 0;  // By a row in costs.txt.
    for (const Scenario& scenario : cases) {
      SCOPED_TRACE(name + ": " + fault.why + ", but in " + scenario.name);
      CaseResult result = planted(scenario, name, true);
      if (only_spares(fault.spares, result)) {
        ++named;
        result = planted(scenario, name, false);
      }
      EXPECT_EQ(result.verdict, Verdict::holds) << result.reason;
    }
    // The fault is met: it does take calls away.
    EXPECT_EQ(named > 0, !fault.spares.empty()) << name;
    std::printf("%s: %d of %zu cases show it, by their rows in costs.txt alone\n", name.c_str(),
                named, cases.size());
  }
}

}  // namespace
}  // namespace lockstep
