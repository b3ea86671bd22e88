// The options of a trainer that are not in its scenario.
#pragma once

namespace lockstep {

class Communicator;
class StepListener;

struct TrainerOptions {
  bool dry_run_ledger = true;        // Record the host code again before each replay, and compare.
  StepListener* listener = nullptr;  // May be null.
  // Null if the run has one rank; else its size is parallel.data.
  Communicator* communicator = nullptr;
};

}  // namespace lockstep
