// The results of an eager run of the engine in the form of the oracle's results. Runs that no judge
// can check step by step are compared with them: those in which NCCL adds gradients, and those
// whose ranks each fold the gradients of cuDNN's attention.
#pragma once

#include "harness/judge/compared_run.h"
#include "harness/judge/expected_steps.h"

namespace lockstep {

// Whether the oracle has the bits of this scenario: not where NCCL adds values whose order matters.
bool oracle_knows(const Scenario& scenario);

// Whether the oracle, or the eager run of one rank that stands in for it, can check each step. That
// run has one fold of gradients, so the scenario must have one too.
bool has_judge_of_steps(const Scenario& scenario, const std::string& device);

// Returns the scenario without graphs and offloading.
Scenario eager(const Scenario& scenario);

// Copies the numbers that both an engine's step and an oracle's have.
void copy_numbers(const StepResult& got, oracle::StepResult& to);
// Returns the parameter as the oracle describes it, without values.
oracle::Parameter without_values(const ParameterView& view);

class EagerReference {
 public:
  EagerReference(const Scenario& scenario, ComparedRun::Rank& rank);

  // Every rank calls these in order: step(), evaluate() if the step has an evaluation, remember().
  void step();
  void evaluate();
  // Adds this rank's elements of the parameters to those of the ranks before it in this process.
  void remember(ReferenceResults& all) &&;

 private:
  oracle::StepResult as_the_oracles(const StepResult& got);

  const Scenario& scenario_;
  ComparedRun::Rank& rank_;
  ReferenceResults remembered_;
};

// Compares the losses of the first step with the oracle's, since before the first sum nothing
// depends on its order. Returns "" or the difference as a sentence.
std::string first_losses_differ(const Scenario& scenario, const DataSource& data,
                                const ReferenceResults& reference);

}  // namespace lockstep
