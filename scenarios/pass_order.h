// The order of the passes of one pipeline stage in a step, and what follows from it: how many
// microbatches each chunk has in flight. The one place where parallel.schedule is spelled out.
// docs/scenario-reference.md, "Pipeline stages and chunks"
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

struct ScheduledPass {
  bool forward;
  std::int64_t chunk;  // The stage numbers them in the order of its layers.
  std::int64_t microbatch;
  friend bool operator==(const ScheduledPass&, const ScheduledPass&) = default;
  // "F0.3", "B1.0".
  friend std::ostream& operator<<(std::ostream& out, const ScheduledPass& pass) {
    return out << (pass.forward ? 'F' : 'B') << pass.chunk << '.' << pass.microbatch;
  }
};

// One stage of `stages`. A group of microbatches runs through one chunk before the next chunk has
// its turn.
struct StageSchedule {
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  std::int64_t stage = 0, stages = 1;
  std::int64_t chunks = 1, group = 1;
  std::int64_t microbatches = 1;
};

// Forward passes that come before the first backward pass, but for the one right before it, which
// opens the first pair of a forward and a backward pass.
std::int64_t warm_up_passes(const StageSchedule& stage);

// Every chunk of the stage runs every microbatch once forward and once backward. Of each chunk both
// kinds ascend in the microbatch, so that gradients are folded in the order of the contract.
std::vector<ScheduledPass> pass_order(const StageSchedule& stage);

// The same for a part of a step (training.resume_at). Where groups would be too small (L55), whole
// groups come first, and the microbatches that are left behind them, fewer than there are stages,
// run one after the other, forward and backward: in any other order stages might wait for each
// other in a circle.
std::vector<ScheduledPass> part_order(const StageSchedule& part);

// The most microbatches that each chunk has between their two passes, in this order.
std::vector<std::int64_t> most_in_flight(const std::vector<ScheduledPass>& passes,
                                         std::int64_t chunks);

// Whether training.in_flight follows from the schedule. Otherwise it is the scenario's.
inline bool depth_follows(const Scenario& scenario) {
  return scenario.parallel.schedule != PipelineSchedule::one_forward_one_backward ||
         scenario.parallel.chunks * scenario.parallel.pipeline > 1;
}

// The passes of a stage of a scenario in a step with so many microbatches.
StageSchedule stage_schedule(const Scenario& scenario, std::int64_t stage,
                             std::int64_t microbatches);

// The slots of each chunk of a stage: the most microbatches that it has in flight in any step, or
// in any part of one.
std::vector<std::int64_t> chunk_slots(const Scenario& scenario, std::int64_t stage = 0);

// The blocks of each piece of the model: pipeline * chunks of them, the first ones larger by one
// where the blocks do not divide. Piece k is chunk k / pipeline of stage k % pipeline.
std::vector<std::int64_t> blocks_of_pieces(std::int64_t blocks, std::int64_t pieces);

inline std::int64_t pieces_of(const Scenario& scenario) {
  return scenario.parallel.pipeline * scenario.parallel.chunks;
}
std::int64_t slots_of_piece(const Scenario& scenario, std::int64_t piece);

// The stage of each symbol of the pattern.
std::vector<std::int64_t> stages_of_layers(const Scenario& scenario);

// Ranks of the run: rank p * parallel.data + d is rank d of stage p.
inline std::int64_t ranks_of_run(const Scenario& scenario) {
  return scenario.parallel.data * scenario.parallel.pipeline;
}

// training.in_flight where it follows: the slots of the first chunk, which every microbatch enters
// first and leaves last.
std::int64_t scheduled_depth(const Scenario& scenario);

}  // namespace lockstep
