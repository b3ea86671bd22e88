#include "harness/mutate/trial.h"

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
  const auto found = result.counters.find(kStruck);
  return found != result.counters.end() && found->second > 0;
}

constexpr std::int64_t kOrders = 1000;  // Explored for a difference that needs a delay, or to prove that there is none.

}  // namespace

PreparedRun prepared(const Fault& fault, const MutationCase& at, TrialMode mode) {
  PreparedRun run{at.scenario, fault.plant};
  Scenario::Checker::Schedule& schedule = run.scenario.checker.schedule;
  run.options.bits_alone = mode != TrialMode::full && mode != TrialMode::prove;
  if (run.options.bits_alone) run.scenario.checker.delays.clear();
  if (run.options.bits_alone) run.scenario.checker.poison.clear();
  if (mode == TrialMode::poison) run.scenario.checker.poison = {Poison::padding, Poison::staging};
  if (mode == TrialMode::plain || mode == TrialMode::poison) {
    run.options.policy = SimOptions::Policy::program;
    schedule.count = 1;
  } else if (mode != TrialMode::full) {
    schedule.kind = ScheduleKind::random;
    schedule.count = kOrders;
  }
  return run;
}

std::optional<TrialRun> Trial::next() const {
  if (outcome_.done) return std::nullopt;
  return TrialRun{number_, fault_->cases[position_], mode_};
}

void Trial::take(const CaseResult& result) {
  switch (mode_) {
    case TrialMode::full:
      return took_full(result);
    case TrialMode::plain:
    case TrialMode::poison:
    case TrialMode::delay:
      return took_bits(result);
    case TrialMode::prove:
      return took_proof(result);
    case TrialMode::idle:
      return took_idle(result);
  }
}

void Trial::quote(const CaseResult& result) {
  outcome_.judge = result.judge;
  outcome_.reason = without_addresses(result.reason);
  outcome_.replay = result.replay;
}

void Trial::took_bits(const CaseResult& result) {
  outcome_.bits = result.verdict == Verdict::violated && is_bit_judge(result.judge);
  if (outcome_.bits && mode_ == TrialMode::poison) outcome_.amplifier = "poison";
  if (outcome_.bits && mode_ == TrialMode::delay) outcome_.amplifier = "delay";
  outcome_.done = outcome_.bits || mode_ == TrialMode::delay;
  mode_ = mode_ == TrialMode::plain ? TrialMode::poison : TrialMode::delay;
}

void Trial::took_full(const CaseResult& result) {
  ++outcome_.scenarios;
  const bool noticed = result.verdict == Verdict::violated || result.verdict == Verdict::broken;
  triggered_ += is_triggered(*fault_, result);
  if (noticed && is_right_reason(*fault_, result)) {
    outcome_.killed = true;
    outcome_.wrong_reason = false;
    outcome_.killer = at().scenario.name;
    quote(result);
    mode_ = TrialMode::plain;
    outcome_.done = at().probe;
    if (at().probe) outcome_.replay = "lockstep mutate --only " + fault_->name;
    return;
  }
  if (noticed && !outcome_.wrong_reason) {
    outcome_.wrong_reason = true;
    quote(result);
  }
  if (outcome_.replay.empty()) outcome_.replay = result.replay;
  if (++position_ == fault_->cases.size()) survive();
}

// Nobody noticed. An edge may be one too many: in the smallest scenario it is run in many orders. A call may do
// nothing: that is looked at in each.
void Trial::survive() {
  position_ = 0;
  while (position_ + 1 < fault_->cases.size() && at().probe) ++position_;
  mode_ = fault_->can_be_idle ? TrialMode::idle : TrialMode::prove;
  if (triggered_ == 0) outcome_.reason = "the call was never met";
  outcome_.done =
      triggered_ == 0 || outcome_.wrong_reason || at().probe || !(fault_->removes_order || fault_->can_be_idle);
}

void Trial::took_idle(const CaseResult& result) {
  outcome_.done = result.verdict != Verdict::holds || ++position_ == fault_->cases.size();
  if (result.verdict != Verdict::holds) return;
  outcome_.equivalent = outcome_.done;
  if (!outcome_.done) return;
  outcome_.argument = "in each of the " + std::to_string(triggered_) +
                      " cases that have the call, nothing that the host sees depends on what it does";
}

void Trial::took_proof(const CaseResult& result) {
  outcome_.done = true;
  if (!is_triggered(*fault_, result)) return;
  if (result.verdict != Verdict::holds) {
    outcome_.killed = is_right_reason(*fault_, result);
    outcome_.killer = at().scenario.name;
    quote(result);
    outcome_.amplifier = "delay";
    return;
  }
  outcome_.argument =
      "in " + std::to_string(triggered_) +
      " cases the checker finds every conflicting access in order without it, and the bits are equal in " +
      std::to_string(kOrders) + " orders of " + at().scenario.name;
  outcome_.equivalent = true;
}

}  // namespace lockstep
