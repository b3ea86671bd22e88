// The state of a mixture of experts between microbatches and steps: counts and the selection bias
// (arithmetic.md 2.11). Integers, so the order of microbatches leaves no trace.
#pragma once

#include "kernels/core/contract.h"
#include "kernels/core/operand.h"
#include "kernels/core/queue.h"

namespace lockstep {

// Adds a microbatch to the counts of the step and of the run.
struct CountPairs {
  static constexpr const char* kName = "count_pairs";
  In<std::int32_t> counts;    // [1, E] pairs that chose each expert.
  In<std::int32_t> rows;      // [1, E] of which kept.
  Accum<std::int32_t> step;   // [1, E] chosen, since the last update of the bias.
  Accum<std::int64_t> total;  // [1, E] chosen, since the run began.
  Accum<std::int64_t> kept;   // [1, E] kept, since the run began.
};

// Updates the bias after the optimizer (arithmetic.md 2.11): an expert with fewer pairs than the
// mean gains `rate`, one with more loses it. The counts of the step, of all ranks, are reset to 0.
struct UpdateExpertBias {
  static constexpr const char* kName = "update_expert_bias";
  Accum<std::int32_t> step;  // [R, E]
  Accum<float> bias;         // [1, E]
  float rate = 0;
};

void check(const CountPairs& op);
void run(HostQueue, const CountPairs& op);
void run(CudaQueue, const CountPairs& op);
void check(const UpdateExpertBias& op);
void run(HostQueue, const UpdateExpertBias& op);
void run(CudaQueue, const UpdateExpertBias& op);

}  // namespace lockstep
