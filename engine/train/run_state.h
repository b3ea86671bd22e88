// The state of a run as a checkpoint names it, and where it lies on this rank. Within a step it has the gradients,
// losses and counts so far beside weights and moments; those belong to microbatches by their number in the step, so
// that other ranks can go on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/run_checkpoint.h"
#include "engine/train/step_loop.h"

namespace lockstep {

// How far a run is, and who took it there.
struct Progress {
  std::int64_t steps = 0;
  std::int64_t microbatches = 0;  // Of the step under way, of all ranks: numbers 0 to microbatches - 1.
  std::int64_t ranks = 1;
  std::int64_t folds = 1;  // Gradients so far: one fold in the order of numbers, or one of each rank's microbatches.
};

// Folds that `ranks` ranks of a run keep within a step.
std::int64_t folds_within_a_step(const Scenario& scenario, std::int64_t ranks);

std::map<std::string, std::string> metadata_of(const Progress& progress);
// Of the file at `path`. Throws std::runtime_error for what metadata_of() does not make.
Progress progress_in(const std::string& path, const std::map<std::string, std::string>& metadata);

// Equal for runs that may continue each other: model, data and optimizer. More steps, other graphs, another depth,
// recomputation or other ranks with as many microbatches a step in all are the same run.
std::map<std::string, std::string> run_identity(const Scenario& scenario);

struct PlacedPart {
  StatePart stored;                  // Without its values.
  Tensor<float> values = {};         // Where they are,
  Tensor<std::int32_t> counts = {};  // or these: stored as [low and high halves, experts], exactly.
};

// What rank `rank` of `ranks` has, or takes, of a run that is so far. Several ranks' counts may go to one place: they
// are added.
std::vector<PlacedPart> placed_parts(StepLoop& loop, const Progress& progress, std::int64_t rank, std::int64_t ranks,
                                     bool sharded);

}  // namespace lockstep
