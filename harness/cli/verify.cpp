// `lockstep verify [FILE...]`
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/base/stopwatch.h"
#include "harness/base/terminal.h"
#include "harness/base/work_share.h"
#include "harness/base/write_file.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_commands.h"
#include "harness/cli/write_reports.h"
#include "harness/costs/costs.h"
#include "harness/megatron/from_megatron.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/report/run_difference.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "harness/run/memory_check.h"
#include "harness/run/planted.h"
#include "harness/run/refusal.h"
#include "harness/run/suite.h"
#include "harness/verify/selection.h"
#include "harness/verify/suite_progress.h"
#include "harness/verify/suite_run.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

// Rows of other scenarios stay as they are.
void update_costs(const std::vector<PlannedCase>& cases,
                  const std::map<std::size_t, CaseResult>& results) {
  std::map<std::string, std::vector<CostRow>> folders;
  for (const auto& [number, result] : results) {
    if (result.costs.empty() || fails(result)) continue;
    const Scenario& scenario = at(cases, number).scenario;
    folders[scenario.folder].push_back(
        {scenario.name, result.numerics, cost_digest(scenario), result.costs});
  }
  if (folders.empty()) throw WorldError("verify: no costs were counted; they need --device sim");
  for (auto& [folder, rows] : folders) {
    const std::size_t counted = rows.size();
    for (const CostRow& old : cost_rows_in(folder)) {
      const bool is_new = std::any_of(rows.begin(), rows.end(), [&](const CostRow& row) {
        return row.name == old.name && row.numerics == old.numerics;
      });
      if (!is_new) rows.push_back(old);
    }
    write_file(cost_file(folder), to_text(rows));
    std::printf("%s: %zu rows written\n", cost_file(folder).c_str(), counted);
  }
}

// Reads everything before any device is opened; all refusals are printed at once.
std::vector<PlannedCase> plan(const std::vector<std::string>& words, const std::string& megatron) {
  std::vector<PlannedCase> cases;
  if (!megatron.empty()) {
    cases.push_back({megatron, from_megatron_file(megatron, Sizes::small).scenario, {}});
    if (words.empty()) return cases;
  }
  std::vector<ScenarioError> errors;
  // `folder`: where they were found; "" for a file that was named.
  const auto add = [&](const std::vector<std::string>& files, const std::string& folder) {
    if (files.empty()) throw RequestError(folder + ": no scenario (*.yaml) in this folder");
    for (const std::string& file : files) {
      for (PlannedCase& one : plan_file(file, !folder.empty(), errors))
        cases.push_back(std::move(one));
    }
  };
  if (words.empty()) add(library_files(), library_folder());
  for (const std::string& word : words) {
    std::error_code unreadable;  // Such a word is refused as a file, Y01.
    const bool folder = std::filesystem::is_directory(word, unreadable);
    folder ? add(scenario_files(word), word) : add({word}, "");
  }
  if (!errors.empty()) throw refusal(errors);
  return cases;
}

void print_edges(const std::vector<CaseResult>& results) {
  for (const CaseResult& one : results) {
    if (one.verdict != Verdict::holds || one.token.empty()) continue;
    std::printf("%s %s: %zu redundant edges\n", one.name.c_str(), one.numerics.c_str(),
                one.redundant_edges.size());
    for (const std::string& edge : one.redundant_edges) std::printf("  %s\n", edge.c_str());
  }
}

// The scenario's own schedules stay where there is no other number.
void ask_for_schedules(Scenario& scenario, std::int64_t count) {
  if (count == 0) return;
  Scenario::Checker::Schedule& schedule = scenario.checker.schedule;
  schedule.count = count;
  if (schedule.kind == ScheduleKind::program) schedule.kind = ScheduleKind::random;
}

void print_schedules(const std::vector<CaseResult>& results) {
  for (const CaseResult& one : results) {
    if (one.schedules.empty()) continue;
    std::printf("%s %s: %s\n", one.name.c_str(), one.numerics.c_str(), one.schedules.c_str());
  }
}

// NoDevice where nothing was named but what is not for this machine.
void require_something_to_run(const std::vector<PlannedCase>& cases) {
  const auto is_lacking = [](const PlannedCase& one) {
    return one.decided && one.decided->judge == JudgeKind::device;
  };
  if (cases.empty() || !std::all_of(cases.begin(), cases.end(), is_lacking)) return;
  throw NoDevice(cases.front().decided->name + ": " + cases.front().decided->reason);
}

// What was verified so far, and its reports.
struct Verified {
  const Options& options;
  const RunOptions& run;
  const Stopwatch& watch;
  std::optional<boost::json::object> against = {};  // The report of --against.
  std::map<std::size_t, CaseResult> results = {};   // By the number of the case.
  DeviceInfo device = {};

  std::vector<CaseResult> list() const {
    std::vector<CaseResult> list;
    for (const auto& [number, result] : results) list.push_back(result);
    return list;
  }
  void write_reports(const std::vector<CaseResult>& list, SuiteEnd end) const {
    boost::json::object whole = run_to_json(list, device, watch.seconds());
    const bool interrupted = end == SuiteEnd::interrupted;
    if (interrupted) whole["interrupted"] = true;
    if (end == SuiteEnd::after_a_failure) whole["stopped_after_failure"] = true;
    if (const std::string uncaught = uncaught_fault(run, list); !uncaught.empty())
      whole["uncaught"] = uncaught;
    if (against) whole["against"] = run_difference(*against, whole, options.text("against"));
    lockstep::write_reports(options, junit(list, interrupted), whole);
  }
};

SuiteEnd run_all(const std::vector<PlannedCase>& cases, const SuiteOptions& suite,
                 InterruptGuard& guard, Verified& done) try {
  SuiteProgress progress(done.options.has("quiet"), cases);
  const auto finished = [&](std::size_t number, CaseResult result) {
    result.file = at(cases, number).file;
    const auto held = guard.lock();
    if (!result.device.name.empty()) done.device = result.device;
    progress.finished(number, result);
    done.results.insert_or_assign(number, std::move(result));
  };
  return run_suite(cases, suite,
                   {finished, [&](const auto& running) { progress.waited(running); }});
} catch (const Interrupted&) {
  return SuiteEnd::interrupted;
}

// Refuses a case that was named; gives up one of a folder, whose others still run.
void require_memory_for_each(std::vector<PlannedCase>& cases, const std::string& device) {
  for (PlannedCase& one : cases) {
    if (one.named && !one.decided) require_memory(one.scenario, memory_use(one.scenario, device));
    give_up_for_memory(one, device);
  }
}

void print(const std::vector<CaseResult>& results, const std::string& uncaught, bool quiet) {
  const Terminal terminal = terminal_at(STDOUT_FILENO);
  for (const CaseResult& one : results) {
    if (fails(one)) std::fputs((failure_block(one, terminal) + "\n").c_str(), stdout);
  }
  if (quiet) return;
  std::fputs(table(results, terminal).c_str(), stdout);
  if (!uncaught.empty()) std::printf("%s\n", uncaught.c_str());
  const auto first = std::find_if(results.begin(), results.end(), fails);
  if (first == results.end()) return;
  const std::string next = next_commands(*first);
  if (!next.empty())
    std::printf("next, for %s (%s):\n%s", first->name.c_str(), first->numerics.c_str(),
                next.c_str());
}

ExitStatus reported(const Verified& done, SuiteEnd end, std::size_t cases) {
  std::vector<CaseResult> results = done.list();
  // The cases that were not run might have met it.
  if (end == SuiteEnd::complete) require_that_the_fault_was_met(done.run, results);
  if (done.run.edges) print_edges(results);
  if (done.options.number("schedules") > 0) print_schedules(results);
  print(results, uncaught_fault(done.run, results), done.options.has("quiet"));
  if (end != SuiteEnd::complete) {
    std::printf("%s: %zu of %zu cases were not run\n",
                end == SuiteEnd::interrupted ? "interrupted" : "stopped after a failure",
                cases - results.size(), cases);
  }
  done.write_reports(results, end);
  if (done.against) {
    const boost::json::object now = run_to_json(results, done.device, 0);
    std::fputs(
        difference_text(run_difference(*done.against, now, done.options.text("against"))).c_str(),
        stdout);
  }
  if (end == SuiteEnd::interrupted) {
    say_interrupted();
    return interrupted_status(exit_status(results));
  }
  if (count_of(results, Verdict::skipped) == static_cast<std::int64_t>(results.size())) {
    throw WorldError("every scenario was skipped: nothing was verified");
  }
  return exit_status(results);
}

// The results where the device is absent and --skip-code was given.
std::vector<CaseResult> all_skipped(const std::vector<PlannedCase>& cases, const char* why) {
  std::vector<CaseResult> list;
  for (const PlannedCase& one : cases) {
    CaseResult result;
    result.name = one.decided ? one.decided->name : one.scenario.name;
    result.numerics = one.decided ? one.decided->numerics : to_text(one.scenario.numerics.front());
    result.file = one.file;
    result.verdict = Verdict::skipped;
    result.judge = JudgeKind::device;
    result.reason = why;
    list.push_back(std::move(result));
  }
  return list;
}

// Where --last-failed left nothing.
ExitStatus nothing_failed(const Options& options) {
  if (!options.has("quiet"))
    std::printf("nothing failed in %s\n", options.text("last-failed").c_str());
  write_reports(options, junit({}), run_to_json({}, {}, 0));
  return ExitStatus::held;
}

}  // namespace

Options verify_options() {
  Options options(
      "verify", "[FILE...]",
      "Runs engine and oracle side by side and compares every activation, loss, gradient, weight "
      "and\n"
      "moment bit for bit. FILE is a scenario or a folder of them; none: the built-in library.",
      -1);
  options.device().reports().isolation().planted().deadline();
  options
      .number(
          "jobs",
          "worker processes; default: one a GPU, one a core on the simulated device. Ranks with "
          "a GPU each run one case at a time",
          0, 0, 1024)
      .text("match",
            "only cases whose name, precision or file contains this; * and ? as in a shell. Short: "
            "-k PATTERN")
      .short_form('k', "match")
      .text("last-failed",
            "leave out what did not fail in this JSON report of an earlier run (--json)")
      .text("against",
            "tell what changed since the run of this JSON report; --html and --json list it")
      .text("shard", "i/n: only cases whose place leaves i when divided by n", "0/1")
      .flag("fail-fast", "begin no case after one that failed");
  options.number("skip-code",
                 "exit status where the device asked for is absent, for test drivers that know one",
                 3, 0, 255);
  options.number("schedules",
                 "schedules of each scenario instead of those in its file (simulated device)", 0,
                 0);
  options.flag("edges",
               "list the waits that protect nothing: without them every conflicting access is "
               "still in order");
  options.text("from-megatron",
               "verify the scenario, of small sizes, that this file asks for: a command line of "
               "Megatron-LM, or the block of arguments in its log");
  options.flag("update-costs",
               "write what each scenario asks of the simulated device to costs.txt in its folder, "
               "instead of comparing with it");
  add_engine_options(options);
  options.example("lockstep verify", "the built-in library on the best device of this machine")
      .example("lockstep verify mine.yaml --device sim --html report.html",
               "one file, with a page for people")
      .example("lockstep verify -k offload --fail-fast",
               "what has offload in its name, until one fails")
      .example("lockstep verify --against yesterday.json --html today.html",
               "what newly fails, what is mended")
      .example("lockstep describe --defaults mine.yaml | lockstep verify - --json -",
               "a scenario from a pipe, a report into one");
  return options;
}

ExitStatus verify_command(const Words& words) {
  Options options = verify_options();
  if (!options.parse(words)) return ExitStatus::held;
  InterruptGuard guard;
  const InterruptGuard::AtEnd unless_there_is_more(guard, without_results(words));
  const CommandFiles files(options);
  const Stopwatch watch;
  RunOptions run;
  take_planted(options, run);
  run.edges = options.has("edges");
  run.costs = !options.has("update-costs");
  run.deadline_s = options.seconds("deadline");
  std::vector<PlannedCase> cases = plan(options.words(), options.text("from-megatron"));
  for (const PlannedCase& one : cases) {
    files.reads("the command", one.file);
    files.reads_data_of(one.scenario);
  }
  if (options.has("last-failed")) files.reads("--last-failed", options.text("last-failed"));
  std::optional<boost::json::object> against;
  if (options.has("against")) {
    files.reads("--against", options.text("against"));
    against = read_report(options.text("against"), "--against");
  }
  select(cases, {.pattern = options.text("match"),
                 .last_failed = options.text("last-failed"),
                 .share = work_share(options.text("shard"))});
  if (cases.empty()) return nothing_failed(options);
  if (asks_for_engine(options)) return verify_on_engine(options, cases, guard);
  for (PlannedCase& one : cases) ask_for_schedules(one.scenario, options.number("schedules"));
  try {
    run.device = choose_device(options.text("device"));
    for (PlannedCase& one : cases) decide_what_is_lacking(one, run.device);
    require_something_to_run(cases);
    if (!options.has("any-size")) require_memory_for_each(cases, run.device);
  } catch (const NoDevice& none) {
    if (!options.has("skip-code")) throw;
    std::fprintf(stderr, "lockstep: skipped: %s\n", none.what());
    // Reports are written too: else those of an earlier run would pass for the ones of this run.
    guard.take_over();
    const Verified nothing{.options = options, .run = run, .watch = watch, .against = against};
    nothing.write_reports(all_skipped(cases, none.what()), SuiteEnd::complete);
    return static_cast<ExitStatus>(options.number("skip-code"));
  }
  const auto jobs = static_cast<int>(options.number("jobs"));
  const SuiteOptions suite{.run = run,
                           .jobs = jobs > 0 ? jobs : default_jobs(run.device),
                           .timeout_s = options.seconds("timeout"),
                           .fork = !options.has("no-fork"),
                           .fail_fast = options.has("fail-fast")};
  Verified done{.options = options, .run = run, .watch = watch, .against = std::move(against)};
  done.device.kind = run.device;
  const InterruptGuard::AtEnd at_end(
      guard, [&] { done.write_reports(done.list(), SuiteEnd::interrupted); });
  const SuiteEnd end = run_all(cases, suite, guard, done);
  guard.take_over();
  if (end == SuiteEnd::complete && !run.costs) update_costs(cases, done.results);
  return reported(done, end, cases.size());
}

}  // namespace lockstep
