#include "harness/run/worker.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/sim/running_op.h"
#include "harness/base/subprocess.h"
#include "harness/judge/runner.h"
#include "harness/judge/seen_difference.h"
#include "harness/report/result_json.h"
#include "harness/run/run_case.h"
#include "kernels/core/fault.h"

namespace lockstep {
namespace {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

}  // namespace

// A broken contract has said its sentence and aborts: the op in which it broke is still running.
extern "C" void tell_running_op(int) {
  char text[256];
  describe_running_op(text, sizeof text);
  const char* const seen = seen_difference();
  if (text[0] == '\0' && seen[0] == '\0') return;
  std::fprintf(stderr, "%s%s%s%s\n", kRunningOp, text, seen[0] == '\0' ? "" : "; before it ", seen);
}

void tell_running_op_at_abort() { std::signal(SIGABRT, tell_running_op); }

CaseResult run_with_fault(const Scenario& scenario, const RunOptions& run) {
  tell_running_op_at_abort();
  plant_fault(run.planted.engine);
  if (fault(kCrashFault)) std::abort();
  while (fault(kHangFault)) ::pause();
  CaseResult result = run_case(scenario, run);
  plant_fault("");
  return result;
}

void judge_death(CaseResult& result, const ChildEnd& end, double timeout_s) {
  result.verdict = Verdict::broken;
  const std::string words = end.last_words.empty() ? "" : ": " + end.last_words;
  if (end.timed_out) {
    result.judge = JudgeKind::watchdog;
    result.reason = "no result within " + seconds_text(timeout_s) + words;
    result.seconds = timeout_s;
  } else if (end.signal == SIGABRT &&
             end.last_words.find("broken contract in ") != std::string::npos) {
    // require() judged before it aborted: that is a finding, not a failed environment.
    result.verdict = Verdict::violated;
    result.judge = JudgeKind::contract;
    result.reason = "the worker was killed by SIGABRT" + words;
  } else if (end.signal == SIGKILL) {
    // The watchdog's own is a timeout, so this one came from the kernel or by hand.
    result.judge = JudgeKind::memory;
    result.reason = "the worker was killed by SIGKILL, probably for want of memory" + words;
  } else if (end.signal != 0) {
    result.judge = JudgeKind::crash;
    result.reason = "the worker was killed by " + signal_name(end.signal) + words;
  } else {
    result.judge = JudgeKind::crash;
    result.reason = "the worker left with status " + std::to_string(end.status) + words;
  }
}

CaseResult run_in_worker(const Scenario& scenario, const RunOptions& run,
                         const WorkerOptions& worker) {
  if (!worker.fork) return run_with_fault(scenario, run);
  const ChildEnd end =
      run_in_child([&] { return boost::json::serialize(to_json(run_with_fault(scenario, run))); },
                   worker.timeout_s, worker.echo);
  if (end.finished) return result_from_json(boost::json::parse(end.output));
  CaseResult result = unjudged_case(scenario, run);
  result.device.kind = run.device;
  judge_death(result, end, worker.timeout_s);
  return result;
}

}  // namespace lockstep
