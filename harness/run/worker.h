// A scenario in a process of its own: a crash, a hang or a device that is beyond repair becomes a
// verdict.
#pragma once

#include <string>

#include "harness/base/subprocess.h"
#include "harness/case/run_options.h"
#include "harness/case/verdict.h"

namespace lockstep {

struct WorkerOptions {
  bool fork = true;        // Off for debuggers.
  double timeout_s = 300;  // For one scenario; then the watchdog kills it.
  bool echo = true;        // Copies its stderr to this process's.
};

// Names of faults that are evaluated in the worker itself, to test the isolation.
inline constexpr const char* kCrashFault = "harness-test-crash";
inline constexpr const char* kHangFault = "harness-test-hang";

// From here on this process says which op ran when a broken contract ends it.
void tell_running_op_at_abort();
// Runs a case in this process, with the fault that `run` plants.
CaseResult run_with_fault(const Scenario& scenario, const RunOptions& run);
CaseResult run_in_worker(const Scenario& scenario, const RunOptions& run,
                         const WorkerOptions& worker);

// Verdict, judge and reason of a case whose process ended like this before it answered.
void judge_death(CaseResult& result, const ChildEnd& end, double timeout_s);

}  // namespace lockstep
