// `lockstep replay TOKEN|FILE`
#include <unistd.h>

#include <cstdio>

#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/base/subprocess.h"
#include "harness/base/terminal.h"
#include "harness/base/write_file.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_commands.h"
#include "harness/cli/trace_run.h"
#include "harness/cli/write_reports.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/report/trace_text.h"
#include "harness/run/device_choice.h"
#include "harness/run/failure.h"
#include "harness/run/memory_check.h"
#include "harness/run/planted.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "scenarios/expert_ranks.h"

namespace lockstep {
namespace {

bool wants_order(const Options& options) { return options.has("trace") || options.has("schedule"); }

void require_one_simulated_run(const std::vector<Scenario>& scenarios, const std::string& device) {
  if (device != "sim") throw RequestError("--trace and --schedule take --device sim");
  for (const Scenario& one : scenarios) {
    if (!captures_calls(one)) continue;
    throw RequestError(
        "--trace and --schedule run all ranks in one process, where a graph holds none of their "
        "exchanges: impl partial has the same passes, without graphs of experts that lie apart");
  }
  if (scenarios.size() == 1) return;
  throw RequestError("--trace and --schedule are of one run; this file has " +
                     std::to_string(scenarios.size()) + " precisions: replay a token, or list one");
}

// The cases that were run until a signal came; `error` where there is none.
void write_interrupted(const Options& options, const std::vector<CaseResult>& results) {
  boost::json::object run =
      run_to_json(results, results.empty() ? DeviceInfo{} : results.front().device, 0);
  run["interrupted"] = true;
  std::vector<CaseResult> cases = results;
  if (cases.empty()) {
    run["error"] = to_json(interrupted_failure());
    cases.push_back(to_result(interrupted_failure()));
  }
  write_reports(options, junit(cases, true), run);
}

// Writes the files of --trace and --schedule. The engine runs once more for it, in a process of its
// own.
void show_order(const Options& options, Scenario scenario, const RunOptions& run) {
  const bool wants_file = options.has("trace"), wants_text = options.has("schedule");
  const auto traced = [&] {
    const Trace trace = trace_case(scenario, run);
    const std::string file = wants_file ? trace_json(trace, scenario.name) : "";
    return boost::json::serialize(boost::json::array{file, schedule_text(trace)});
  };
  ChildEnd end = run_in_child(traced, options.seconds("timeout"));
  if (!end.finished && scenario.checker.schedule.kind != ScheduleKind::program) {
    std::fprintf(stderr, "lockstep: this schedule kills the run (%s): shown in program order\n",
                 end.last_words.c_str());
    scenario.checker.schedule.kind = ScheduleKind::program;
    end = run_in_child(traced, options.seconds("timeout"));
  }
  if (!end.finished)
    throw WorldError("the run died before its trace was written: " + end.last_words);
  const boost::json::array both = boost::json::parse(end.output).as_array();
  if (wants_file) write_file(options.text("trace"), both[0].as_string());
  if (wants_text) std::fputs(both[1].as_string().c_str(), stdout);
}

}  // namespace

Options replay_options() {
  Options options(
      "replay", "TOKEN|FILE",
      "Runs one case again: equal token, equal bits, same verdict, same first difference.", 1);
  options.device().reports().isolation().planted();
  options.text("data-from",
               "folder that a token's data.path is relative to; this one if not given");
  options.text("trace", "write what the simulator ran to this file, for ui.perfetto.dev")
      .flag("schedule", "print the order in which the simulator ran it");
  add_engine_options(options);
  options.example("lockstep replay ls... --trace trace.json",
                  "the case of a token, to be looked at in ui.perfetto.dev");
  return options;
}

ExitStatus replay_command(const Words& words) {
  Options options = replay_options();
  if (!options.parse(words)) return ExitStatus::held;
  InterruptGuard guard;
  std::vector<CaseResult> results;
  const InterruptGuard::AtEnd at_end(guard, [&] { write_interrupted(options, results); });
  const CommandFiles files(options, {"trace"});
  RunOptions run;
  take_planted(options, run);
  const std::vector<Scenario> scenarios = cases_of(options.word(), options.text("data-from"));
  for (const Scenario& one : scenarios) files.reads_data_of(one);
  if (asks_for_engine(options)) return replay_on_engine(options, scenarios, guard);
  run.device = choose_device(options.text("device"));
  if (wants_order(options)) require_one_simulated_run(scenarios, run.device);
  if (!options.has("any-size")) {
    for (const Scenario& one : scenarios) require_memory(one, memory_use(one, run.device));
  }
  const WorkerOptions worker{.fork = !options.has("no-fork"),
                             .timeout_s = options.seconds("timeout")};

  double seconds = 0;
  try {
    for (const Scenario& scenario : scenarios) {
      CaseResult result = judged_by_expectation(scenario, run_in_worker(scenario, run, worker));
      const auto held = guard.lock();
      results.push_back(std::move(result));
    }
  } catch (const Interrupted&) {
    guard.take_over();
    write_interrupted(options, results);
    throw;
  }
  require_that_the_fault_was_met(run, results);
  for (const CaseResult& one : results) {
    seconds += one.seconds;
    if (one.verdict != Verdict::holds) {
      std::fputs(failure_block(one, terminal_at(STDOUT_FILENO)).c_str(), stdout);
    } else if (!options.has("quiet")) {
      std::printf("%s (%s) holds%s%s\n", one.name.c_str(), one.numerics.c_str(),
                  one.reason.empty() ? "" : ": ", one.reason.c_str());
    }
  }
  const std::string uncaught = uncaught_fault(run, results);
  if (!uncaught.empty() && !options.has("quiet")) std::printf("%s\n", uncaught.c_str());
  if (wants_order(options)) show_order(options, scenarios.front(), run);
  guard.take_over();
  boost::json::object whole = run_to_json(results, results.front().device, seconds);
  if (!uncaught.empty()) whole["uncaught"] = uncaught;
  write_reports(options, junit(results), whole);
  return exit_status(results);
}

}  // namespace lockstep
