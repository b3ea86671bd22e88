// `lockstep mutate`
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <span>
#include <thread>

#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/base/progress.h"
#include "harness/base/stopwatch.h"
#include "harness/base/work_share.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/write_reports.h"
#include "harness/inject/fault_table.h"
#include "harness/mutate/named.h"
#include "harness/mutate/pool.h"
#include "harness/mutate/report.h"
#include "harness/mutate/systematic.h"
#include "harness/page/mutation_page.h"
#include "harness/report/report.h"
#include "harness/run/device_choice.h"
#include "scenarios/syntax/nearest.h"

namespace lockstep {
namespace {

// Returns why `--only` leaves nothing, and what to do.
std::string no_such_fault(const std::string& only, const std::vector<Fault>& all) {
  std::vector<std::string> names;
  for (const Fault& fault : all) names.push_back(fault.name);
  for (const std::span<const FaultRow> rows : {kernel_fault_rows(), engine_fault_rows()}) {
    for (const FaultRow& row : rows) {
      if (row.name == only && row.has(kNoScenario))
        return "--only " + only + ": no scenario shows this fault; tests of its own find it";
    }
  }
  return "--only " + only + ": no fault has such a name" + nearest_hint(only, names) +
         "; see --list. A new one takes a row in a table of faults: docs/adding.md, \"A planted "
         "fault\"";
}

std::vector<Fault> matching(std::vector<Fault> faults, const std::string& only) {
  if (!only.empty()) {
    std::erase_if(faults, [&](const Fault& fault) {
      return ::fnmatch(only.c_str(), fault.name.c_str(), 0) != 0;
    });
  }
  return faults;
}

bool is_glob(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

std::vector<Fault> chosen_faults(const Options& options, const std::vector<MutationCase>& cases) {
  const std::string only = options.text("only");
  std::vector<Fault> all = named_faults(cases);
  // Systematic faults are drawn from the recorded cases, of which some are missing.
  if (Interrupts::came()) return matching(std::move(all), only);
  const bool one_call = !only.empty() && !is_glob(only) && device_fault(only);
  if (one_call) {  // Any call may be named, not only those that a seed draws.
    if (const auto fault = systematic_fault(cases, only)) return {*fault};
  } else {
    for (Fault& fault : systematic_faults(cases, static_cast<std::uint64_t>(options.number("seed")),
                                          options.number("per-operator"))) {
      all.push_back(std::move(fault));
    }
  }
  std::vector<Fault> chosen = matching(all, only);
  if (chosen.empty()) throw RequestError(no_such_fault(only, all));
  return chosen;
}

void print_list(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    std::printf("%-10s  %-24s %s\n", fault.kind == Fault::Kind::named ? "named" : "systematic",
                fault.bug_class.c_str(), fault.name.c_str());
  }
}

// The settings that decide which faults are run: reports of one campaign differ only in their
// share.
boost::json::object asked(const Options& options, const std::string& device) {
  return {{"only", options.text("only")},
          {"seed", options.number("seed")},
          {"per_operator", options.number("per-operator")},
          {"scenarios", options.number("scenarios")},
          {"device", device},
          {"shard", options.text("shard")}};
}

struct Evaluated {
  const std::vector<Fault>& faults;
  std::vector<EvaluationOutcome> outcomes;
  double seconds = 0;
  bool interrupted = false;  // Some are not done for that.
};

void write_all_reports(const Options& options, const boost::json::object& asked,
                       const Evaluated& what) {
  boost::json::object all = mutation_json(asked, what.faults, what.outcomes, what.seconds);
  if (what.interrupted) all["interrupted"] = true;
  write_reports(options,
                junit(mutation_cases_for_junit(what.faults, what.outcomes), what.interrupted), all,
                mutation_page);
}

// The table, the survivors, the file; what it means.
ExitStatus reported(const Options& options, const boost::json::object& asked,
                    const Evaluated& what) {
  if (!options.has("quiet")) std::fputs(score_text(what.faults, what.outcomes).c_str(), stdout);
  if (!options.has("quiet")) std::fputs(killers_text(what.faults, what.outcomes).c_str(), stdout);
  std::fputs(survivors_text(what.faults, what.outcomes).c_str(), stdout);
  write_all_reports(options, asked, what);
  bool finished = !what.interrupted;
  for (const EvaluationOutcome& outcome : what.outcomes) {
    if (outcome.done && !outcome.killed && !outcome.equivalent) return ExitStatus::violated;
    finished = finished && outcome.done;
  }
  return finished ? ExitStatus::held : ExitStatus::gave_up;
}

std::vector<EvaluationOutcome> outcomes_of(const std::vector<MutantEvaluation>& trials) {
  std::vector<EvaluationOutcome> outcomes;
  for (const MutantEvaluation& trial : trials) outcomes.push_back(trial.outcome());
  return outcomes;
}

// Shares of one campaign, each once, and none missing: else what is not there would count as
// killed.
ExitStatus put_together(const Options& options) {
  for (const char* name : {"only", "seed", "per-operator", "scenarios", "shard", "device"}) {
    if (options.has(name))
      throw RequestError(std::string("--") + name + " is for a run; files are only put together");
  }
  std::vector<Fault> faults;
  std::vector<EvaluationOutcome> outcomes;
  double seconds = 0;  // The longest share.
  bool interrupted = false;
  boost::json::object first;
  std::map<std::int64_t, std::string> files;  // Keyed by the number of the share.
  for (const std::string& file : options.words()) {
    boost::json::object of_file = add_mutation_json(file, faults, outcomes, seconds, interrupted);
    const WorkShare share = work_share(std::string(of_file.at("shard").as_string()));
    of_file["shard"] = share.of;
    if (files.empty()) first = of_file;
    if (of_file != first)
      throw RequestError(file + " is of another campaign than " + options.words().front());
    const auto [other, is_new] = files.emplace(share.number, file);
    if (!is_new) throw RequestError(file + " is the same share as " + other->second);
  }
  const std::int64_t count = first.at("shard").as_int64();
  for (std::int64_t i = 0; i < count; ++i) {
    if (!files.contains(i))
      throw RequestError("share " + std::to_string(i) + "/" + std::to_string(count) +
                         " is missing");
  }
  first["shard"] = "0/1";
  return reported(options, first, {faults, std::move(outcomes), seconds, interrupted});
}

// Prints the faults of --list.
ExitStatus listed(const Options& options, const std::vector<Fault>& faults) {
  print_list(faults);
  std::vector<EvaluationOutcome> none(faults.size());  // All are `finished: false`.
  write_all_reports(options, asked(options, options.text("device")), {faults, std::move(none)});
  return ExitStatus::held;
}

}  // namespace

Options mutate_options() {
  Options options(
      "mutate", "[FILE...]",
      "Plants faults, one at a time, in kernels, engine, oracle and checker and at the device "
      "door, and\n"
      "reports which are caught, by which judge, after how many scenarios (docs/mutation.md). "
      "FILE: what\n"
      "--json has written on several machines, one --shard each; put together, and nothing is run.",
      -1);
  options.text("only", "faults whose name is this or matches it: 'drop-wait/*'")
      .flag("list", "print the faults and run none")
      .number("seed", "which calls of a recorded run the systematic faults strike", 1, 0)
      .number("per-operator", "systematic faults of each operator", 32, 0)
      .text("shard", "i/n: only faults whose number in --list leaves i when divided by n", "0/1")
      .number("scenarios", "how many cases a fault is tried in, smallest first", 1000, 1)
      .choice("device", "sim or cuda; systematic faults are drawn from runs on sim",
              {"auto", "sim", "cuda"}, "sim")
      .number("jobs", "worker processes; 0: one for each core", 0, 0, 1024)
      .seconds("timeout", "seconds after which the watchdog kills a run", 60)
      .seconds("budget", "seconds for all; what is not done then is reported as not run")
      .text("json", "write the result to this file")
      .text("junit", "write a case for each fault to this file, for CI")
      .text("html", "write a page for people to this file");
  options.example("lockstep mutate --only cu-seqlens-tail-is-zero",
                  "one planted fault, and the judge that finds it");
  return options;
}

ExitStatus mutate_command(const Words& words) {
  Options options = mutate_options();
  if (!options.parse(words)) return ExitStatus::held;
  InterruptGuard guard;
  const InterruptGuard::AtEnd unless_there_is_more(guard, without_results(words));
  const CommandFiles files(options);
  if (!options.words().empty()) return put_together(options);
  const Stopwatch watch;
  const WorkShare share = work_share(options.text("shard"));
  PoolOptions pool{.jobs = static_cast<int>(options.number("jobs")),
                   .timeout_s = options.seconds("timeout")};
  if (pool.jobs == 0)
    pool.jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::vector<MutationCase> cases = mutation_cases(options.number("scenarios"));
  std::vector<Fault> faults = chosen_faults(options, cases);
  std::int64_t number = 0;
  std::erase_if(faults, [&](const Fault&) { return !share.has(number++); });
  if (options.has("list")) return listed(options, faults);
  const std::string device = choose_device(options.text("device"));
  for (Fault& fault : faults) fault.plant.device = device;

  std::vector<MutantEvaluation> trials;
  for (std::size_t i = 0; i < faults.size(); ++i)
    trials.emplace_back(static_cast<int>(i), faults[i], cases);
  const boost::json::object asked_for = asked(options, device);
  const InterruptGuard::AtEnd at_end(guard, [&] {
    write_all_reports(options, asked_for, {faults, outcomes_of(trials), watch.seconds(), true});
  });
  Progress progress(options.has("quiet"));
  const auto told = [&](std::size_t done) {
    progress.show("[" + std::to_string(done) + "/" + std::to_string(faults.size()) + "] faults");
  };
  if (options.has("budget")) pool.budget_s = options.seconds("budget") - watch.seconds();
  run_trials(trials, faults, cases, pool, told, [&] { return guard.lock(); });
  guard.take_over();
  progress.clear();
  Evaluated what{faults, outcomes_of(trials), watch.seconds()};
  const auto is_done = [](const EvaluationOutcome& outcome) { return outcome.done; };
  // The list may be empty where the signal came while the runs were recorded.
  what.interrupted =
      Interrupts::came() && (trials.empty() || !std::ranges::all_of(what.outcomes, is_done));
  const ExitStatus status = reported(options, asked_for, what);
  if (what.interrupted) say_interrupted();
  return status;
}

}  // namespace lockstep
