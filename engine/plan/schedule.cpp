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
  const int last = faulty("last-backward-pass-dropped", end, end - 1);
  while (backward < last) passes.push_back({false, backward++});
  return passes;
}

}  // namespace lockstep
