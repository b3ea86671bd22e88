// What an eager run of the engine gave, kept as the oracle's results are: what judges runs whose sums are the
// library's.
#pragma once

#include "harness/judged_run.h"
#include "harness/judged_steps.h"

namespace lockstep {

// Whether the oracle knows the bits: not where the library adds up what has an order.
bool oracle_knows(const Scenario& scenario);

// The scenario without graphs and offloading.
Scenario eager(const Scenario& scenario);

// What an engine's step and an oracle's both have one of.
void copy_numbers(const StepResult& got, oracle::StepResult& to);
// The parameter as the oracle has it, without values.
oracle::Parameter without_values(const ParameterView& view);

class EagerReference {
 public:
  EagerReference(const Scenario& scenario, JudgedRun::Rank& rank);

  // Every rank calls them, in order: a step, the evaluation behind it if there is one, the end.
  void step();
  void evaluate();
  Remembered remember() &&;

 private:
  oracle::StepResult as_the_oracles(const StepResult& got);

  const Scenario& scenario_;
  JudgedRun::Rank& rank_;
  Remembered remembered_;
};

// Before the first sum nothing depends on its order: the oracle's losses of the first step, in words where they differ.
std::string first_losses_differ(const Scenario& scenario, const DataSource& data, const Remembered& reference);

}  // namespace lockstep
