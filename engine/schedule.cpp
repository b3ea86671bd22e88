#include "engine/schedule.h"

#include "kernels/fault.h"

namespace lockstep {

std::vector<Pass> one_forward_one_backward(int microbatches, int in_flight) {
  std::vector<Pass> passes;
  int backward = 0;
  for (int forward = 0; forward < microbatches; ++forward) {
    if (forward - backward == in_flight) passes.push_back({false, backward++});
    passes.push_back({true, forward});
  }
  if (fault("last-backward-pass-dropped")) --microbatches;
  while (backward < microbatches) passes.push_back({false, backward++});
  return passes;
}

}  // namespace lockstep
