#include "harness/run/run_case.h"

#include "harness/judge/runner.h"
#include "harness/run/multi_process_case.h"

namespace lockstep {

CaseResult run_case(const Scenario& scenario, const RunOptions& options) {
  if (options.ranks == nullptr && wants_processes(scenario))
    return run_case_in_processes(scenario, options);
  return judge_case(scenario, options);
}

}  // namespace lockstep
