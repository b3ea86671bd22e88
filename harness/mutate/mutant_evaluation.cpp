#include "harness/mutate/mutant_evaluation.h"

#include <algorithm>
#include <regex>

namespace lockstep {
namespace {

// Equal runs, equal reports: an address is another one in every process.
std::string without_addresses(const std::string& text) {
  static const std::regex address("0x[0-9a-f]{9,}");
  return std::regex_replace(text, address, "0x...");
}

// A fault that has changed no call cannot be noticed, and such a run proves nothing.
bool is_triggered(const Fault& fault, const CaseResult& result) {
  if (fault.kind != Fault::Kind::systematic) return true;
  const auto found = result.counters.find(Counter::door_faults_struck);
  return found != result.counters.end() && found->second > 0;
}

// Explored for a difference that needs a delay, or to prove that there is none.
constexpr std::int64_t kOrders = 1000;

}  // namespace

PreparedRun prepared(const Fault& fault, const MutationCase& at, EvaluationMode mode) {
  PreparedRun run{at.scenario, fault.plant};
  Scenario::Checker::Schedule& schedule = run.scenario.checker.schedule;
  // costs.txt would name any fault that adds or takes a call, and nothing else would be tried.
  run.options.costs = std::any_of(fault.reasons.begin(), fault.reasons.end(),
                                  [](const Reason& one) { return one.judge == JudgeKind::costs; });
  run.options.bits_alone = mode != EvaluationMode::full && mode != EvaluationMode::prove;
  if (run.options.bits_alone) run.scenario.checker.delays.clear();
  if (run.options.bits_alone) run.scenario.checker.poison.clear();
  if (mode == EvaluationMode::poison)
    run.scenario.checker.poison = {Poison::padding, Poison::staging};
  if (mode == EvaluationMode::plain || mode == EvaluationMode::poison) {
    run.options.policy = SimOptions::Policy::program;
    schedule.count = 1;
  } else if (mode != EvaluationMode::full) {
    schedule.kind = ScheduleKind::random;
    schedule.count = kOrders;
  }
  return run;
}

std::optional<EvaluationRun> MutantEvaluation::next() const {
  if (outcome_.done) return std::nullopt;
  return EvaluationRun{number_, fault_->cases[position_], mode_};
}

void MutantEvaluation::take(const CaseResult& result) {
  switch (mode_) {
    case EvaluationMode::full:
      return took_full(result);
    case EvaluationMode::plain:
    case EvaluationMode::poison:
    case EvaluationMode::delay:
      return took_bits(result);
    case EvaluationMode::prove:
      return took_proof(result);
    case EvaluationMode::idle:
      return took_equivalence(result);
  }
}

void MutantEvaluation::quote(const CaseResult& result) {
  outcome_.judge = result.judge;
  outcome_.reason = without_addresses(result.reason);
  outcome_.replay = result.replay;
}

void MutantEvaluation::took_bits(const CaseResult& result) {
  outcome_.bits = result.verdict == Verdict::violated && is_bit_judge(result.judge);
  if (outcome_.bits && mode_ == EvaluationMode::poison) outcome_.amplifier = "poison";
  if (outcome_.bits && mode_ == EvaluationMode::delay) outcome_.amplifier = "delay";
  outcome_.done = outcome_.bits || mode_ == EvaluationMode::delay;
  mode_ = mode_ == EvaluationMode::plain ? EvaluationMode::poison : EvaluationMode::delay;
}

void MutantEvaluation::took_full(const CaseResult& result) {
  ++outcome_.scenarios;
  const bool noticed = result.verdict == Verdict::violated || result.verdict == Verdict::broken;
  triggered_ += is_triggered(*fault_, result);
  if (noticed && is_right_reason(*fault_, result)) {
    outcome_.killed = true;
    outcome_.wrong_reason = false;
    outcome_.killer = at().scenario.name;
    quote(result);
    mode_ = EvaluationMode::plain;
    outcome_.done = at().program;
    if (at().program) outcome_.replay = "lockstep mutate --only " + fault_->name;
    return;
  }
  if (noticed && !outcome_.wrong_reason) {
    outcome_.wrong_reason = true;
    quote(result);
  }
  if (outcome_.replay.empty()) outcome_.replay = result.replay;
  if (++position_ == fault_->cases.size()) survive();
}

// No judge found the fault. An edge may be redundant, so the smallest scenario runs in many orders.
// A call may have no effect, which is checked in each case.
void MutantEvaluation::survive() {
  position_ = 0;
  while (position_ + 1 < fault_->cases.size() && at().program) ++position_;
  mode_ = fault_->can_be_equivalent ? EvaluationMode::idle : EvaluationMode::prove;
  if (triggered_ == 0) outcome_.reason = "the call was never met";
  outcome_.done = triggered_ == 0 || outcome_.wrong_reason || at().program ||
                  !(fault_->removes_order || fault_->can_be_equivalent);
}

void MutantEvaluation::took_equivalence(const CaseResult& result) {
  outcome_.done = result.verdict != Verdict::holds || ++position_ == fault_->cases.size();
  if (result.verdict != Verdict::holds) return;
  outcome_.equivalent = outcome_.done;
  if (!outcome_.done) return;
  outcome_.argument =
      "in each of the " + std::to_string(triggered_) +
      " cases that have the call, nothing that the host sees depends on what it does";
}

void MutantEvaluation::took_proof(const CaseResult& result) {
  outcome_.done = true;
  if (!is_triggered(*fault_, result)) return;
  if (result.verdict != Verdict::holds) {
    outcome_.killed = is_right_reason(*fault_, result);
    outcome_.killer = at().scenario.name;
    quote(result);
    outcome_.amplifier = "delay";
    return;
  }
  outcome_.argument = "in " + std::to_string(triggered_) +
                      " cases the checker finds every conflicting access in order without it, and "
                      "the bits are equal in " +
                      std::to_string(kOrders) + " orders of " + at().scenario.name;
  outcome_.equivalent = true;
}

}  // namespace lockstep
