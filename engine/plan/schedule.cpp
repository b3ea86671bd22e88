#include "engine/plan/schedule.h"

#include "kernels/core/fault.h"

namespace lockstep {

std::vector<Pass> one_forward_one_backward(int end, int in_flight, int first) {
  std::vector<Pass> passes;
  int backward = first;
  for (int forward = first; forward < end; ++forward) {
    if (forward - backward == in_flight) passes.push_back({false, backward++});
    passes.push_back({true, forward});
  }
  if (fault("last-backward-pass-dropped")) --end;
  while (backward < end) passes.push_back({false, backward++});
  return passes;
}

}  // namespace lockstep
