// On two GPUs: a worker on each, and ranks over NCCL that stay.
#include <gmock/gmock.h>

#include <set>

#include "harness/run/device_choice.h"
#include "tests/harness/verify/suite_fixture.h"

namespace lockstep {
namespace {

class SuiteOnTwoGpus : public Suite {
 protected:
  SuiteEnd run_on_gpus(const std::vector<PlannedCase>& cases, SuiteOptions options = {}) {
    options.run.device = choose_device("cuda");
    options.judge = [this](const Scenario& scenario, const RunOptions& own) {
      note(scenario, own);
      return run_with_fault(scenario, own);
    };
    return run_judged(cases, options);
  }
  void expect_all_hold() const {
    for (const auto& [number, result] : results_)
      EXPECT_EQ(result.verdict, Verdict::holds) << result.name << ": " << result.reason;
  }
};

TEST_F(SuiteOnTwoGpus, RanksOverNcclStayFromCaseToCase) {
  const std::string sums = "fsdp: {strategy: optim_grads, reduction: nccl}\n";
  EXPECT_EQ(run_on_gpus({planned("two-1", 2, "nccl"), planned("sums", 2, "nccl", sums),
                         planned("two-2", 2, "nccl"), planned("one")}),
            SuiteEnd::complete);
  ASSERT_EQ(results_.size(), 4u);
  expect_all_hold();
  std::map<std::string, std::map<int, pid_t>> of;
  for (const Line& one : lines()) of[one.name][one.rank] = one.process;
  EXPECT_EQ(of["two-1"], of["two-2"]);
  // These read other variables of NCCL.
  EXPECT_NE(of["sums"][0], of["two-1"][0]);
}

TEST_F(SuiteOnTwoGpus, EachWorkerTakesOne) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back("a-" + std::to_string(i));
  SuiteOptions options;
  options.jobs = default_jobs("cuda");
  EXPECT_GE(options.jobs, 2);
  EXPECT_EQ(run_on_gpus(all_planned(names), options), SuiteEnd::complete);
  EXPECT_EQ(results_.size(), names.size());
  expect_all_hold();
  std::set<pid_t> processes;
  for (const Line& one : lines()) processes.insert(one.process);
  EXPECT_EQ(processes.size(), static_cast<unsigned>(options.jobs));
}

}  // namespace
}  // namespace lockstep
