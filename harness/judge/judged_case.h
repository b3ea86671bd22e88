// The input of every run that judges a case, and the outcome of such a run, as values.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"
#include "harness/checker/checker.h"
#include "harness/costs/cost_counter.h"
#include "harness/explore/program.h"
#include "harness/judge/compared_run.h"
#include "harness/judge/eager_reference.h"
#include "harness/judge/expected_steps.h"
#include "harness/judge/op_watch.h"
#include "harness/judge/run_progress.h"

namespace lockstep {

struct JudgedCase {
  const Scenario& scenario;
  const RunOptions& options;
  const DataSource& data;
  OpWatch* watch = nullptr;  // Is told of every op of a run on the simulated device.

  bool checks_hazards() const { return scenario.checker.hazards && !options.bits_alone; }
  Observer* observer(Checker& checker) const { return checks_hazards() ? &checker : nullptr; }
  CheckerOptions checker_options(NeededOrder* needed = nullptr) const {
    return {.mutation = options.planted.checker, .dropped = {}, .needed = needed};
  }
  SimOptions simulator(std::int64_t seed) const;
  // Whether each rank is a process of its own, which sees only its own calls.
  bool ranks_are_processes() const { return options.ranks != nullptr && options.ranks->apart(); }
  bool has_step_judge() const { return has_judge_of_steps(scenario, options.device); }
  // Whether costs are counted. A process counts those of its own ranks.
  bool counts_costs() const { return options.device == "sim" && !options.policy; }
  // Whether order that no access needs is a finding. The passes of a capture set memory aside that
  // other streams use, and wait for all of it.
  bool judges_order() const {
    return counts_costs() && checks_hazards() && options.planted.checker.empty() &&
           scenario.cuda_graph.capture_passes == 0;
  }
  // Whether the hosts take turns in the calls that a graph holds.
  bool ranks_take_turns_in_graphs() const {
    return ranks_are_processes() && scenario.cuda_graph.impl == GraphImpl::full_iteration;
  }
  bool explores() const {
    return options.device == "sim" && !options.policy && !ranks_are_processes();
  }
};

struct RunFinding {
  Verdict verdict = Verdict::violated;
  JudgeKind judge = JudgeKind::none;
  std::string reason;
  std::optional<FirstDifference> where = {};
  bool thrown = false;  // The run ended with an exception, so what it gave is incomplete.
  std::vector<HazardRecord> hazards = {};
};
// Returns the exception that is being handled as a finding. Rethrows what no run may throw.
RunFinding current_exception_as_finding();

// What one run found and counted. A part that the run did not reach is absent.
struct RunOutcome {
  std::optional<RunFinding> finding;
  std::optional<DeviceInfo> device = {};
  std::int64_t triggered = 0;  // How often the planted device fault took effect.
  std::optional<ReferenceResults> reference = {};
  std::optional<Counters> counters = {};
  std::optional<Costs> costs = {};
  StepMemory step_memory = {};
  RecomputedOps recomputed = {};
  std::string needless = {};  // Order that the run did not need (NeededOrder).
  std::string pageable = {};  // Copies that the host waits for (CostCounter).
  std::vector<std::string> redundant_edges = {};
  std::optional<Program> program = {};
  std::vector<bool> delayed = {};  // For each of checker.delays, whether it delayed a call.
  std::int64_t resumes = 0;        // How often the run was saved, destroyed and loaded.
  std::int64_t launches = 0;       // Graph launches that the checker saw.
  // Sizes of captured graphs, by rank.
  std::map<int, std::vector<std::int64_t>> captured_calls = {};

  bool holds() const { return !finding; }
};

// Runs the eager engine without planted faults. Later runs must give its results where no oracle
// can check each step.
RunOutcome reference_run(const JudgedCase& one, std::int64_t seed);

// Compares every tensor of every pass with the reference while the engine runs.
RunOutcome observed_run(const JudgedCase& one, std::int64_t seed);

// Runs the engine without reading from the device, and compares its results at the end. The checker
// sees every call: reading synchronises streams, so most hazards are found here. With `is_first`
// the run also records its program.
RunOutcome unobserved_run(const JudgedCase& one, const ReferenceResults& reference,
                          const SimOptions& sim, bool is_first);

// Runs the engine in parts, as training.resume_at says: each begins with a new device and trainer
// and loads what the part before it saved.
RunOutcome resumed_run(const JudgedCase& one, const ReferenceResults& reference,
                       const SimOptions& sim);

// Runs a step and its evaluation, and compares their results. Returns whether no rank has found
// anything. `costs`, if there is one, is told when the evaluation begins.
bool unobserved_step(std::int64_t step, const ReferenceResults& reference, ComparedRun::Rank& rank,
                     const RunProgress& progress, CostCounter* costs = nullptr);
// Compares what a rank has after the last step.
void compare_state(RunOutcome& outcome, const ReferenceResults& reference, ComparedRun::Rank& rank);

// Runs `body` and turns an exception from it into the outcome's finding.
RunOutcome outcome_of(const std::function<void(RunOutcome&)>& body);
// Runs `body`, which uses `run`. A difference that was noted before an exception is reported first.
void collect(RunOutcome& outcome, ComparedRun& run, const std::function<void()>& body);
// Compares a rank's digests of weights and of fp8's scaling state at the end of a run.
void compare_digests(RunOutcome& outcome, const ComparedRun::Rank& rank, const std::string& weights,
                     const std::string& scaling);

}  // namespace lockstep
