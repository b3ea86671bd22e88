// The order of forward and backward passes of a step.
#pragma once

#include <ostream>
#include <vector>

namespace lockstep {

struct Pass {
  bool forward;
  int microbatch;
  friend bool operator==(const Pass&, const Pass&) = default;
  // "F3", "B0".
  friend std::ostream& operator<<(std::ostream& out, const Pass& pass) {
    return out << (pass.forward ? 'F' : 'B') << pass.microbatch;
  }
};

// 1F1B with `in_flight` microbatches between forward and backward: F F F B F B B B for 3 of 4.
// Backward passes come in ascending order, so gradients accumulate in the order of the contract at
// every depth. Covers the microbatches `first` to `end` - 1.
std::vector<Pass> one_forward_one_backward(int end, int in_flight, int first = 0);

}  // namespace lockstep
