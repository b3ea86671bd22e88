// The same on a GPU: an error that its context keeps ends one worker and one case.
#include <gmock/gmock.h>

#include "engine/device/backend.h"
#include "harness/run/device_choice.h"
#include "kernels/diagnostics/poison.h"
#include "tests/harness/verify/suite_fixture.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A kernel that writes to the first page, where no memory is: every later call of the process
// fails. (An address in the middle of the space may be mapped.)
void break_the_context() {
  const std::unique_ptr<Backend> backend = open_cuda();
  BackendStream* const stream = backend->create_stream("compute");
  void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{256});
  backend->submit(stream, Submission(poison(nowhere, 256, PoisonMemory::kFresh)));
  try {
    backend->synchronize(stream);
  } catch (const DeviceError&) {
  }
}

class SuiteOnAGpu : public Suite {
 protected:
  SuiteEnd run_on_a_gpu(const std::vector<PlannedCase>& cases, SuiteOptions options = {}) {
    options.run.device = choose_device("cuda");
    options.judge = [this](const Scenario& scenario, const RunOptions& own) {
      note(scenario, own);
      if (scenario.name.starts_with("crash")) std::abort();
      while (scenario.name.starts_with("hang")) ::pause();
      if (scenario.name.starts_with("breaks")) break_the_context();
      return run_with_fault(scenario, own);
    };
    return run_judged(cases, options);
  }
};

TEST_F(SuiteOnAGpu, AnErrorThatStaysEndsOneCase) {
  EXPECT_EQ(run_on_a_gpu(all_planned({"a", "breaks", "b", "c"})), SuiteEnd::complete);
  EXPECT_EQ(results_.at(0).verdict, Verdict::holds) << results_.at(0).reason;
  EXPECT_EQ(results_.at(1).verdict, Verdict::broken);
  EXPECT_EQ(results_.at(1).judge, JudgeKind::device);
  EXPECT_THAT(results_.at(1).reason, HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_EQ(results_.at(2).verdict, Verdict::holds) << results_.at(2).reason;
  EXPECT_EQ(lines_of("breaks").size(), 2u);
  EXPECT_NE(lines_of("a")[0].process, lines_of("b")[0].process);
  EXPECT_EQ(lines_of("b")[0].process, lines_of("c")[0].process);
}

TEST_F(SuiteOnAGpu, ACrashAndAHangEndOneCaseEach) {
  SuiteOptions options;
  options.timeout_s = 10;
  EXPECT_EQ(run_on_a_gpu(all_planned({"a", "crash", "b", "hang", "c"}), options),
            SuiteEnd::complete);
  EXPECT_EQ(results_.at(1).judge, JudgeKind::crash);
  EXPECT_EQ(results_.at(3).judge, JudgeKind::watchdog);
  for (const std::size_t sound : {0, 2, 4})
    EXPECT_EQ(results_.at(sound).verdict, Verdict::holds) << results_.at(sound).reason;
}

// Their processes stay; each opens the GPU once.
TEST_F(SuiteOnAGpu, RanksOverTheHostStayFromCaseToCase) {
  EXPECT_EQ(run_on_a_gpu({planned("two-1", 2), planned("two-2", 2), planned("one")}),
            SuiteEnd::complete);
  for (const auto& [number, result] : results_)
    EXPECT_EQ(result.verdict, Verdict::holds) << result.reason;
  std::map<std::string, std::map<int, pid_t>> of;
  for (const Line& one : lines()) of[one.name][one.rank] = one.process;
  EXPECT_EQ(of["two-1"], of["two-2"]);
}

}  // namespace
}  // namespace lockstep
