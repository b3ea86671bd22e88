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

}  // namespace

bool can_be_equivalent(DeviceOperator op) {
  return only_leaves_out(op) || op == DeviceOperator::wrong_buffer ||
         op == DeviceOperator::bake_scalar || op == DeviceOperator::move_op;
}

CaseResult judge_equivalence(const Scenario& scenario, const DeviceFault& fault) {
  DeviceMutator marker(scenario.model.pattern, fault, DeviceMutator::Mode::mark);
  const Program program = program_with_mark(scenario, marker);
  const std::vector<bool> live = live_items(program);
  CaseResult result;
  result.name = scenario.name;
  if (marker.triggered() == 0) {
    result.verdict = Verdict::broken;
    result.judge = JudgeKind::effect;
    result.reason = "the call was not met";
  }
  for (int i = 0; i < program.size(); ++i) {
    const Work& work = at(program.items, i).work;
    if (std::strcmp(work.place.part, DeviceMutator::kMark) != 0) continue;
    if (only_leaves_out(fault.op) && (!at(live, i) || marker.changed_nothing())) continue;
    result.verdict = Verdict::violated;
    result.judge = JudgeKind::effect;
    result.reason = std::string(work.name) + " has an effect in " + scenario.name;
    break;
  }
  return result;
}

}  // namespace lockstep
