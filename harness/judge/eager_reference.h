// The results of an eager run of the engine, kept as the oracle's results are. They judge runs for
// which no judge can say each tensor while they go on. Those whose sums are the library's, and
// those whose ranks each fold what cuDNN gave.
#pragma once

#include "harness/judge/compared_run.h"
#include "harness/judge/expected_steps.h"

namespace lockstep {

// Whether the oracle knows the bits: not where the library adds up what has an order.
bool oracle_knows(const Scenario& scenario);

// Whether the oracle, or the eager run of one rank that stands in for it, says each step of such a
// run: that has one fold of gradients.
bool has_judge_of_steps(const Scenario& scenario, const std::string& device);

// The scenario without graphs and offloading.
Scenario eager(const Scenario& scenario);

// Copies the numbers that both an engine's step and an oracle's have.
void copy_numbers(const StepResult& got, oracle::StepResult& to);
// The parameter as the oracle has it, without values.
oracle::Parameter without_values(const ParameterView& view);

class EagerReference {
 public:
  EagerReference(const Scenario& scenario, ComparedRun::Rank& rank);

  // Every rank calls them, in order: a step, the evaluation behind it if there is one, the end.
  void step();
  void evaluate();
  // Adds the parameters' elements that this rank has to what the ranks before it in this process
  // gave.
  void remember(ReferenceResults& all) &&;

 private:
  oracle::StepResult as_the_oracles(const StepResult& got);

  const Scenario& scenario_;
  ComparedRun::Rank& rank_;
  ReferenceResults remembered_;
};

// Before the first sum nothing depends on its order: the oracle's losses of the first step, in
// words where they differ.
std::string first_losses_differ(const Scenario& scenario, const DataSource& data,
                                const ReferenceResults& reference);

}  // namespace lockstep
