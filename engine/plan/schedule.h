// The order of forward and backward passes of a step.
#pragma once

#include <ostream>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

struct Pass {
  bool forward;
  int microbatch;
  int chunk = 0;
  friend bool operator==(const Pass&, const Pass&) = default;
  // "F3", "B0"; with its chunk if it is not the first: "F3/1".
  friend std::ostream& operator<<(std::ostream& out, const Pass& pass) {
    out << (pass.forward ? 'F' : 'B') << pass.microbatch;
    return pass.chunk == 0 ? out : out << '/' << pass.chunk;
  }
};

// 1F1B with `in_flight` microbatches between forward and backward: F F F B F B B B for 3 of 4.
// Backward passes come in ascending order, so gradients accumulate in the order of the contract at
// every depth. Covers the microbatches `first` to `end` - 1.
std::vector<Pass> one_forward_one_backward(int end, int in_flight, int first = 0);

// The passes of a stage of the microbatches `first` to `end` - 1 of a step in the scenario's
// schedule. A part of a step has its own warm-up, and leaves nothing in flight.
std::vector<Pass> passes_of_step(const Scenario& scenario, int first, int end, int stage = 0);
// The same as parts of `at_once` microbatches that follow each other.
std::vector<Pass> passes_of_parts(const Scenario& scenario, int first, int end, int at_once,
                                  int stage);

}  // namespace lockstep
