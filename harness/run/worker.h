// A scenario in a process of its own: a crash, a hang or a device that is beyond repair becomes a verdict.
#pragma once

#include <functional>
#include <string>

#include "harness/judge/runner.h"

namespace lockstep {

struct WorkerOptions {
  bool fork = true;        // Off for debuggers.
  double timeout_s = 300;  // Of one scenario; then the watchdog kills it.
  bool echo = true;        // What it writes to stderr goes to this process's too.
};

// Names of faults that are evaluated in the worker itself, to test the isolation.
inline constexpr const char* kCrashFault = "harness-test-crash";
inline constexpr const char* kHangFault = "harness-test-hang";

CaseResult run_in_worker(const Scenario& scenario, const RunOptions& run, const WorkerOptions& worker);

// How a child ended that computed a text: its output, or how it died.
struct ChildEnd {
  bool finished = false;  // Exited with status 0.
  bool timed_out = false;
  int signal = 0;          // That killed it, 0 for none.
  int status = 0;          // Exit status.
  std::string output;      // What `body` returned.
  std::string last_words;  // Of its stderr.
};
// The line of `said` that says why a process ended: that of a broken contract, else the last one.
std::string last_words(std::string said);
// What it says on stderr goes to ours as well, if `echo`.
ChildEnd run_in_child(const std::function<std::string()>& body, double timeout_s, bool echo = true);

// Verdict, judge and reason of a case whose process ended like this before it answered.
void judge_death(CaseResult& result, const ChildEnd& end, double timeout_s);

}  // namespace lockstep
