#include "harness/mutate/cases.h"

#include <algorithm>
#include <utility>

#include "harness/base/interrupts.h"
#include "harness/case/schedules.h"
#include "harness/judge/thread_ranks.h"
#include "harness/run/library.h"
#include "harness/run/multi_process_case.h"
#include "harness/run/refusal.h"
#include "harness/run/suite.h"

namespace lockstep {
namespace {

// Runs the engine as in an unobserved run, and records which calls a fault could change.
void record(MutationCase& one) {
  const auto data = open_data(one.scenario);
  DeviceMutator counter(one.scenario.model.pattern);
  SimOptions sim = sim_options(one.scenario, one.scenario.checker.schedule.seed);
  sim.policy = SimOptions::Policy::program;
  Device device(open_sim(sim), nullptr, pressure_of(one.scenario), &counter);
  const auto unlooked = [](int) -> TrainerOptions { return {.dry_run_ledger = false}; };
  train_to_the_end(device, one.scenario, *data, unlooked,
                   [](ThreadRank& rank) { rank.trainer.weight_digest(); });
  one.ops = device.counters.ops;
  for (std::size_t op = 0; op < one.sites.size(); ++op)
    one.sites[op] = counter.sites(static_cast<DeviceOperator>(op));
  one.last_launches = counter.last_launches();
}

// Layers that all passes of all ranks go through: what a run is about as long as.
std::int64_t reckoned_length(const MutationCase& one) {
  const Scenario& s = one.scenario;
  std::int64_t passes = 0;
  for (std::int64_t step = 0; step < s.training.steps; ++step)
    passes += s.training.microbatches_at(step);
  return passes * s.parallel.data * static_cast<std::int64_t>(s.model.pattern.size());
}

}  // namespace

std::vector<MutationCase> mutation_cases(std::int64_t most) {
  std::vector<MutationCase> cases;
  std::vector<ScenarioError> errors;
  for (const std::string& file : scenario_files(library_folder())) {
    for (PlannedCase& one : plan_file(file, true, errors)) {
      decide_what_is_lacking(one, "sim");
      if (one.decided || one.scenario.expect.verdict != ExpectedVerdict::holds) continue;
      cases.push_back({.scenario = std::move(one.scenario), .sites = {}, .last_launches = {}});
    }
  }
  if (!errors.empty()) throw refusal(errors);
  if (static_cast<std::size_t>(most) < cases.size()) {  // Recording all takes seconds.
    std::stable_sort(cases.begin(), cases.end(), [](const MutationCase& a, const MutationCase& b) {
      return reckoned_length(a) < reckoned_length(b);
    });
    cases.resize(most);
  }
  for (MutationCase& one : cases) {
    if (Interrupts::came()) break;  // The caller asks, too.
    if (!wants_processes(one.scenario)) record(one);
  }
  // Ranks that are processes come last: no mutator counts the calls of their devices, so they can
  // show named faults alone.
  std::stable_sort(cases.begin(), cases.end(), [](const MutationCase& a, const MutationCase& b) {
    return std::pair(a.ops == 0, a.ops) < std::pair(b.ops == 0, b.ops);
  });
  for (const FixtureProgram& program : fixture_programs()) {
    cases.push_back({.scenario = {}, .sites = {}, .last_launches = {}, .program = &program});
    cases.back().scenario.name = program.name;
  }
  return cases;
}

}  // namespace lockstep
