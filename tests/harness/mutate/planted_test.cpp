// The list of faults that change nothing which a run can show. That every other one is caught is
// for `lockstep mutate`.
#include <gtest/gtest.h>

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

TEST(PlantedFaults, EachThatChangesNothingSurvives) {
  const std::vector<Scenario> cases = library();
  ASSERT_GT(cases.size(), 50u);
  for (const auto& [name, why] : equivalent_faults()) {
    for (const Scenario& scenario : cases) {
      const CaseResult result =
          run_in_worker(scenario, {.device = "sim", .planted = {.engine = name}},
                        {.fork = true, .timeout_s = 60});
      EXPECT_EQ(result.verdict, Verdict::holds)
          << name << ": " << why << ", but in " << scenario.name << ": " << result.reason;
    }
  }
}

}  // namespace
}  // namespace lockstep
