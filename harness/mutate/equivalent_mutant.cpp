#include "harness/mutate/equivalent_mutant.h"

#include <cstring>
#include <utility>
#include <vector>

#include "harness/case/schedules.h"
#include "harness/explore/recorder.h"
#include "harness/inject/mutator.h"
#include "harness/judge/thread_ranks.h"
#include "kernels/core/at.h"

namespace lockstep {
namespace {

Program program_with_mark(const Scenario& scenario, DeviceMutator& marker) {
  const auto data = open_data(scenario);
  ProgramRecorder recorder;
  SimOptions sim = sim_options(scenario, scenario.checker.schedule.seed);
  sim.policy = SimOptions::Policy::program;
  Pressure pressure = pressure_of(scenario);
  pressure.delays.clear();
  Device device(open_sim(sim), &recorder, std::move(pressure), &marker);
  const auto unlooked = [](int) -> TrainerOptions { return {.dry_run_ledger = false}; };
  train_to_the_end(device, scenario, *data, unlooked, [](ThreadRank& rank) {
    for (const ParameterView& p : rank.trainer.parameters()) {
      for (const Tensor<float>& values : {p.weight, p.m, p.v}) rank.trainer.read(values);
    }
    rank.trainer.weight_digest();
  });
  return std::move(recorder).finish();
}

// By item: whether something that the host sees depends on what it writes.
std::vector<bool> live_items(const Program& program) {
  std::vector<bool> live(program.size()), wanted(program.atoms);
  for (int i = program.size() - 1; i >= 0; --i) {
    bool needed = at(program.items, i).observed;
    for (const int atom : program.writes_of(i)) {
      needed = needed || at(wanted, atom);
      at(wanted, atom) = false;
    }
    if (!needed) continue;
    at(live, i) = true;
    for (const int atom : program.reads_of(i)) at(wanted, atom) = true;
  }
  return live;
}

bool only_leaves_out(DeviceOperator op) {
  return op == DeviceOperator::drop_copy || op == DeviceOperator::drop_fill ||
         op == DeviceOperator::drop_op;
}

// Holds if nothing that the host sees depends on what the marked call writes.
CaseResult judge_marked(const Scenario& scenario, const DeviceFault& fault,
                        DeviceMutator::Mode mode) {
  DeviceMutator marker(scenario.model.pattern, fault, mode);
  const Program program = program_with_mark(scenario, marker);
  CaseResult result;
  result.name = scenario.name;
  const auto end = [&result](Verdict verdict, std::string reason) {
    result.verdict = verdict;
    result.judge = JudgeKind::effect;
    result.reason = std::move(reason);
    return result;
  };
  if (marker.triggered() == 0) return end(Verdict::broken, "the call was not met");
  if (program.size() >= static_cast<int>(ProgramRecorder::kMost))
    return end(Verdict::gave_up, "nobody noted what the end of the run reads");
  if (only_leaves_out(fault.op) && marker.changed_nothing()) return result;
  const std::vector<bool> live = live_items(program);
  for (int i = 0; i < program.size(); ++i) {
    const Work& work = at(program.items, i).work;
    if (std::strcmp(work.place.part, DeviceMutator::kMark) != 0 || !at(live, i)) continue;
    return end(Verdict::violated, std::string(work.name) + " has an effect in " + scenario.name);
  }
  return result;
}

}  // namespace

bool can_be_equivalent(DeviceOperator op) {
  return only_leaves_out(op) || op == DeviceOperator::wrong_buffer ||
         op == DeviceOperator::bake_scalar || op == DeviceOperator::move_op;
}

CaseResult judge_equivalence(const Scenario& scenario, const DeviceFault& fault) {
  CaseResult result = judge_marked(scenario, fault, DeviceMutator::Mode::mark);
  if (result.verdict != Verdict::holds || only_leaves_out(fault.op)) return result;
  return judge_marked(scenario, fault, DeviceMutator::Mode::strike_and_mark);
}

}  // namespace lockstep
