// Runs one scenario in one precision: engine and oracle side by side over the same documents, in this process.
#pragma once

#include <optional>
#include <string>

#include "engine/device/observer.h"
#include "harness/case/verdict.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct RanksHere;

// A judge: another rank found what is wrong.
inline constexpr const char* kElsewhere = "elsewhere";

struct RunOptions {
  std::string device = "sim";  // "sim" or "cuda".
  std::string fault;           // Planted in kernels, engine or at the device door (harness/mutate), "" for none.
  std::string mutation;        // Planted in the oracle, "" for none.
  std::string blindness = "";  // Planted in the checker, "" for none.
  bool edges = false;          // List the edges that protect nothing.
  bool bits_alone = false;     // Neither checker nor dry-run ledger: only what a comparison of values sees.
  std::optional<SimOptions::Policy> policy = {};  // Instead of the scenario's schedules.
  const RanksHere* ranks = nullptr;               // Null: all of the scenario's.
  double deadline_s = 60;                         // Of ranks that are processes, for a collective.
  Observer* watcher = nullptr;                    // Told of every call at the device door, beside the judges.
};

// `scenario` lists one precision. First a run that is looked at after every pass, which names a difference best; then
// one run per schedule that nobody looks at before its end, because looking drains the device and so hides races.
CaseResult run_case(const Scenario& scenario, const RunOptions& options);

// The case with token and replay line, before it ran.
CaseResult unjudged_case(const Scenario& scenario, const RunOptions& options);

// The command that runs this case again, from any folder of this machine.
std::string replay_line(const Scenario& scenario, const std::string& token, const RunOptions& options);

}  // namespace lockstep
