// Runs trials on worker processes. Equal trials, equal outcomes, whatever the number of workers.
#pragma once

#include <functional>
#include <vector>

#include "harness/mutate/mutant_evaluation.h"

namespace lockstep {

struct PoolOptions {
  int jobs = 1;
  double timeout_s = 60;  // The limit of one run.
  double budget_s = 0;    // The limit of all runs together; 0 is none.
};

// `told` after each trial that is done, with how many are.
void run_trials(std::vector<MutantEvaluation>& trials, const std::vector<Fault>& faults,
                const std::vector<MutationCase>& cases, const PoolOptions& options,
                const std::function<void(std::size_t)>& told);

}  // namespace lockstep
