#include "engine/plan/schedule.h"

#include <algorithm>
#include <utility>

#include "kernels/core/fault.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

// For planted faults.
std::vector<Pass> with_chunks_mirrored(std::vector<Pass> passes, int chunks) {
  for (Pass& pass : passes) {
    if (pass.forward) pass.chunk = chunks - 1 - pass.chunk;
  }
  return passes;
}

// Two backward passes of a chunk that follow each other, so that both microbatches are in flight.
std::vector<Pass> with_backward_passes_swapped(std::vector<Pass> passes) {
  for (std::size_t i = passes.size(); i-- > 1;) {
    Pass &a = passes[i - 1], &b = passes[i];
    if (a.forward || b.forward || a.chunk != b.chunk) continue;
    std::swap(a, b);
    break;
  }
  return passes;
}

std::vector<Pass> shifted(const StageSchedule& stage, int first) {
  std::vector<Pass> passes;
  for (const ScheduledPass& pass :
       faulty("part-of-a-step-in-cut-groups", part_order(stage), pass_order(stage))) {
    passes.push_back({.forward = pass.forward,
                      .microbatch = first + static_cast<int>(pass.microbatch),
                      .chunk = static_cast<int>(pass.chunk)});
  }
  const bool all = faulty("last-backward-pass-dropped", true, false);
  if (!all) passes.pop_back();
  return passes;
}

}  // namespace

std::vector<Pass> one_forward_one_backward(int end, int in_flight, int first) {
  if (end == first) return {};
  return shifted({.stages = in_flight, .microbatches = end - first}, first);
}

std::vector<Pass> passes_of_step(const Scenario& scenario, int first, int end, int stage) {
  if (end == first) return {};
  const std::vector<Pass> right = shifted(stage_schedule(scenario, stage, end - first), first);
  if (scenario.parallel.chunks == 1) return right;
  const int chunks = static_cast<int>(scenario.parallel.chunks);
  const std::vector<Pass> ordered =
      faulty("forward-chunks-in-opposite-order", right, with_chunks_mirrored(right, chunks));
  return faulty("backward-passes-of-a-chunk-swapped", ordered,
                with_backward_passes_swapped(ordered));
}

std::vector<Pass> passes_of_parts(const Scenario& scenario, int first, int end, int at_once,
                                  int stage) {
  std::vector<Pass> all;
  for (int begin = first; begin < end; begin += at_once) {
    const std::vector<Pass> part =
        passes_of_step(scenario, begin, std::min(end, begin + at_once), stage);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace lockstep
