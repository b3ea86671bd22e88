// State that layers `E` keep between microbatches and steps, beside their parameters: the selection
// bias and counts. All of it changes in training passes only; evaluation, capture and dry runs
// leave it alone.
#pragma once

#include <vector>

#include "engine/comm/communicator.h"
#include "engine/plan/chunks.h"
#include "engine/tensors/memory_range.h"
#include "engine/tensors/tensor_pool.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct ExpertState {
  int layer = 0;       // Symbol index.
  int number = 0;      // Among all layers `E` of the model.
  Tensor<float> bias;  // [1, E]; absent without expert_bias. Saved in checkpoints.
  // [1, E]: pairs of row and slot that chose each expert since the last update of the bias.
  Tensor<std::int32_t> step;
  // [1, E]: pairs that chose each expert since this process began, and those of them not dropped.
  Tensor<std::int64_t> total, kept;
  // [R, E]: `step` of every rank. Absent without expert_bias or without other ranks.
  Tensor<std::int32_t> all_steps;
};

// Returns one state for each `E` of these chunks, in order. `ranks` is 0 without other ranks.
std::vector<ExpertState> make_expert_states(TensorPool& pool, const Scenario::Model& model,
                                            const std::vector<Chunk>& chunks, int ranks);

void clear(const Stream& stream, const std::vector<ExpertState>& states);

// Training passes count these.
std::vector<MemoryRange> counts_of(const std::vector<ExpertState>& states);

// Updates the biases after a step's optimizer (arithmetic.md 2.11) and zeroes `step`. With a
// communicator the counts of all ranks are added.
void update_biases(const Stream& stream, const std::vector<ExpertState>& states,
                   Communicator* communicator);

}  // namespace lockstep
