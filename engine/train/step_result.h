// The numbers that a training step or an evaluation yields.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// The auxiliary losses of the routers: reported apart from the loss, differentiated with weight 1.
struct RouterLosses {
  float balance = 0;
  float z = 0;
};

// Sums over all ranks, except the members whose names begin with `microbatch_`: they are this
// rank's.
struct StepResult {
  float loss = 0;
  float norm = 0, clip = 1, learning_rate = 0;  // An evaluation leaves these three unused.
  std::vector<float> microbatch_losses;
  // Folds by add from +0: microbatches in order of number, and the layers of each in order.
  RouterLosses router_losses;
  std::vector<std::vector<RouterLosses>> microbatch_router_losses;  // [microbatch][layer E]
  std::int64_t tokens = 0;  // Tokens of documents in the step.
};

}  // namespace lockstep
