// Chooses the next run of a fault over its cases, and evaluates the results. It runs nothing
// itself.
#pragma once

#include <optional>
#include <string>

#include "harness/mutate/cases.h"
#include "harness/mutate/fault.h"
#include "kernels/core/at.h"

namespace lockstep {

// The judges and the order of the device with which a case is run.
enum class EvaluationMode : std::uint8_t {
  full,    // As `verify` does.
  plain,   // Values alone, in the order of the calls.
  poison,  // The same, where slots and staging memory have no value before they are used again.
  delay,   // Values alone, in random orders.
  prove,   // As `verify` does, and in 1000 orders by tags.
  idle,    // Without the fault: does the call that it strikes do anything?
};

struct EvaluationRun {
  int fault = 0;  // Index into the list of faults.
  int at = 0;     // Index into the list of cases.
  EvaluationMode mode = EvaluationMode::full;
};

// A scenario to run, and the options to run it with.
struct PreparedRun {
  Scenario scenario;
  RunOptions options;
};
PreparedRun prepared(const Fault& fault, const MutationCase& at, EvaluationMode mode);

struct EvaluationOutcome {
  bool done = false;  // False where the budget ended first.
  bool killed = false;
  bool equivalent = false;
  JudgeKind judge = JudgeKind::none;
  std::string amplifier = "none";
  bool bits = false;  // Values alone would have shown it.
  std::int64_t scenarios = 0;
  std::string killer;  // Name of the case.
  // The judge's report; for a survivor, a report for another reason, if there was one.
  std::string reason;
  bool wrong_reason = false;
  std::string argument;  // Why an equivalent one is.
  std::string replay;
};

class MutantEvaluation {
 public:
  MutantEvaluation(int number, const Fault& fault, const std::vector<MutationCase>& cases)
      : number_(number), fault_(&fault), cases_(&cases) {}

  std::optional<EvaluationRun> next() const;
  void take(const CaseResult& result);
  const EvaluationOutcome& outcome() const { return outcome_; }

 private:
  void took_full(const CaseResult& result);
  void took_bits(const CaseResult& result);
  void took_equivalence(const CaseResult& result);
  void took_proof(const CaseResult& result);
  void survive();
  void quote(const CaseResult& result);  // Keeps the judge's report.
  const MutationCase& at() const { return lockstep::at(*cases_, fault_->cases[position_]); }

  int number_;
  const Fault* fault_;
  const std::vector<MutationCase>* cases_;
  std::size_t position_ = 0;
  std::int64_t triggered_ = 0;  // Cases in which the fault did something.
  EvaluationMode mode_ = EvaluationMode::full;
  EvaluationOutcome outcome_;
};

}  // namespace lockstep
