// The state of a run as a checkpoint stores it, and the memory on this rank that holds it. Within a
// step it has the gradients, losses and counts so far beside weights and moments. Losses belong to
// microbatches by their number in the step, so that a different number of ranks can continue.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/run_checkpoint.h"
#include "engine/train/step_loop.h"

namespace lockstep {

// The progress of a run, and the number of ranks that made it.
struct Progress {
  std::int64_t steps = 0;
  // Microbatches of all ranks in the current step: numbers 0 to microbatches - 1.
  std::int64_t microbatches = 0;
  std::int64_t ranks = 1;
  // Gradients so far: one fold in the order of numbers, or one of each rank's microbatches.
  std::int64_t folds = 1;
};

// Folds that `ranks` ranks of a run keep within a step.
std::int64_t folds_within_a_step(const Scenario& scenario, std::int64_t ranks);

std::map<std::string, std::string> metadata_of(const Progress& progress);
// Reads the metadata of the file at `path`. Throws std::runtime_error for metadata that
// metadata_of() does not make.
Progress progress_in(const std::string& path, const std::map<std::string, std::string>& metadata);

// Equal for runs that may continue each other: model, data and optimizer. More steps, other graphs,
// another depth, recomputation or other ranks with as many microbatches a step in all are the same
// run.
std::map<std::string, std::string> run_identity(const Scenario& scenario);

struct ResidentShard {
  TensorShard stored;  // Its values are empty.
  // The memory that holds the values, or counts, which are stored exactly as [low and high halves,
  // experts].
  Tensor<float> values = {};
  Tensor<std::int32_t> counts = {};
  // So many ranks of a stage, the first ones, hold different values of it; the others the same.
  std::int64_t holders = 1;
};

// The shards that rank `rank` of `ranks` saves, or loads, at this progress. The counts of several
// ranks may go to one rank, which adds them.
std::vector<ResidentShard> resident_shards(const StepLoop& loop, const Progress& progress,
                                           std::int64_t rank, std::int64_t ranks, bool sharded);

}  // namespace lockstep
