#include "harness/run/planted.h"

#include <algorithm>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/checker/checker.h"
#include "harness/inject/device_fault.h"
#include "harness/inject/document_fault.h"
#include "harness/inject/fault_table.h"
#include "harness/report/report.h"
#include "harness/run/worker.h"
#include "oracle/oracle.h"
#include "scenarios/syntax/nearest.h"

namespace lockstep {
namespace {

// Returns the names that contain the requested one, or the nearest name, or where names are listed.
std::string names_like(const std::string& asked, const std::vector<std::string>& known) {
  constexpr int kShown = 5;
  std::string list;
  int count = 0;
  for (const std::string& name : known) {
    if (name.find(asked) == std::string::npos || ++count > kShown) continue;
    list += (list.empty() ? "; these contain it: " : ", ") + name;
  }
  if (count > kShown) list += " and " + std::to_string(count - kShown) + " more";
  return (list.empty() ? nearest_hint(asked, known) : list) +
         "; `lockstep mutate --list` names all";
}

std::string checked(const std::string& name, const std::vector<std::string>& known,
                    const char* option) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return name;
  throw RequestError(std::string("--") + option + ": there is no " + name +
                     names_like(name, known));
}

void require_a_sound_checker(const RunOptions& run, std::vector<CaseResult>& results) {
  if (run.planted.checker.empty()) return;
  for (CaseResult& one : results) {
    if (one.verdict != Verdict::holds || one.token.empty()) continue;
    one.verdict = Verdict::violated;
    one.judge = JudgeKind::vacuous;
    one.reason = "it held, but the checker has the planted error " + run.planted.checker;
  }
}

}  // namespace

std::vector<std::string> known_faults() {
  std::vector<std::string> names = kernel_faults();
  for (const std::string& name : engine_faults()) names.push_back(name);
  for (const std::string& name : document_faults()) names.push_back(name);
  names.insert(names.end(), {kCrashFault, kHangFault});
  return names;
}

void take_planted(const Options& options, RunOptions& run) {
  const std::string fault = options.text("plant");
  run.planted.engine = device_fault(fault) ? fault : checked(fault, known_faults(), "plant");
  run.planted.oracle =
      checked(options.text("mutate-oracle"), oracle::Oracle::mutations(), "mutate-oracle");
  run.planted.checker =
      checked(options.text("mutate-checker"), Checker::mutations(), "mutate-checker");
}

void require_that_the_fault_was_met(const RunOptions& run, std::vector<CaseResult>& results) {
  require_a_sound_checker(run, results);
  if (run.planted.engine.empty()) return;
  for (const CaseResult& one : results) {
    const auto met = one.counters.find(Counter::planted_fault_met);
    // A worker that died has no counters: it may have died of the fault.
    if (fails(one) || (met != one.counters.end() && met->second > 0)) return;
  }
  for (CaseResult& one : results) {
    if (one.verdict != Verdict::holds || !one.counters.contains(Counter::planted_fault_met))
      continue;
    one.verdict = Verdict::violated;
    one.judge = JudgeKind::vacuous;
    one.reason = "the planted fault " + run.planted.engine + " met no place in this scenario";
  }
}

std::string uncaught_fault(const RunOptions& run, const std::vector<CaseResult>& results) {
  std::int64_t met = 0, cases = 0;
  for (const CaseResult& one : results) {
    if (fails(one)) return "";
    const auto found = one.counters.find(Counter::planted_fault_met);
    if (found == one.counters.end() || found->second == 0) continue;
    met += found->second;
    ++cases;
  }
  if (run.planted.engine.empty() || cases == 0) return "";
  return "planted " + run.planted.engine + ": met " + std::to_string(met) +
         (met == 1 ? " time" : " times") + ", not caught by " +
         (cases == 1 ? "this scenario" : "these " + std::to_string(cases) + " cases");
}

}  // namespace lockstep
