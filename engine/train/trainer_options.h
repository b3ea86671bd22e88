// The options of a trainer that are not in its scenario.
#pragma once

#include <vector>

namespace lockstep {

class Communicator;
class StepListener;

// The scalars of each step, instead of those that the scenario implies. At least one a step.
struct StepScalars {
  std::vector<float> loss_scale;  // The factor of the sum of a step's token losses.
  std::vector<float> learning_rate;
};

struct TrainerOptions {
  bool dry_run_ledger = true;        // Record the host code again before each replay, and compare.
  StepListener* listener = nullptr;  // May be null.
  // Null if the run has one rank; else its size is parallel.data.
  Communicator* communicator = nullptr;
  // parallel.expert above 1: the ranks that share the experts, and those that have the same ones. A
  // trainer makes both.
  Communicator *experts = nullptr, *replicas = nullptr;
  const StepScalars* scalars = nullptr;  // May be null; outlives the trainer.
};

}  // namespace lockstep
