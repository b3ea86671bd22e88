// Evaluates mutants on worker processes. The outcomes do not depend on the number of workers.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "harness/mutate/mutant_evaluation.h"

namespace lockstep {

struct PoolOptions {
  int jobs = 1;
  double timeout_s = 60;  // The limit of one run.
  double budget_s = 0;    // The limit of all runs together; 0 is none. Less than 0: it is spent.
};

// `told` is called after each evaluation with the number of finished ones. Where a signal comes or
// the budget ends, runs are stopped, and their evaluations are not done. Trials change while `lock`
// is held.
void run_trials(std::vector<MutantEvaluation>& trials, const std::vector<Fault>& faults,
                const std::vector<MutationCase>& cases, const PoolOptions& options,
                const std::function<void(std::size_t)>& told,
                const std::function<std::unique_lock<std::mutex>()>& lock);

}  // namespace lockstep
