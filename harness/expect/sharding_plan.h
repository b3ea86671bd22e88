// The units and buckets of a scenario's parameters, the units with buffers of their own, and the
// number of collectives: computed from the scenario alone, as the expectation for the engine.
// docs/fsdp.md says the same in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/expect/parameter_table.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Parameters that the ranks exchange in one call: parameters that the forward pass reads in one
// storage type.
struct PlannedBucket {
  std::string name;           // "unit 2", "embedding", "final norm", "head 0"
  int unit = -1;              // -1 outside of units: such a bucket is always resident.
  bool narrow = false;        // Read as bf16 copies.
  std::int64_t elements = 0;  // Without padding.
  // Experts that lie on several ranks: so many gradients are exchanged in place of one.
  std::int64_t sources = 1;
};

struct ShardingPlan {
  std::vector<PlannedBucket> buckets;  // In the order of the model.
  int units = 0;
  std::vector<int> pooled;      // Units that share the two slots of double buffering, in order.
  std::vector<int> persistent;  // Units that have a buffer for good. Units in neither have buffers
                                // that come and go.
};

// The plan for the first of the scenario's precisions.
ShardingPlan plan_sharding(const Scenario& scenario);

// Calls that a rank makes: when its trainer is made, in a training step of `microbatches` a rank,
// in an evaluation.
std::int64_t collectives_at_start(const Scenario& scenario, const ShardingPlan& plan);
std::int64_t collectives_of_step(const Scenario& scenario, const ShardingPlan& plan,
                                 std::int64_t microbatches);
std::int64_t collectives_of_evaluation(const Scenario& scenario, const ShardingPlan& plan,
                                       std::int64_t microbatches);
// Calls of the passes of a capture (cuda_graph.capture_passes), for all regions and slots of one
// bucket, or for those of a stage.
std::int64_t collectives_of_capture(const Scenario& scenario, const ShardingPlan& plan,
                                    std::optional<std::int64_t> stage = {});
// Exchanges of rows that graphs of parts hold, of a microbatch that they replay.
std::int64_t exchanges_in_regions(const Scenario& scenario, bool trains);
// The collectives that belong to the passes: a graph of the whole step, or evaluation, holds them.
// Exchanges of amaxes under recipe delayed of fp8; those are among the collectives of passes.
std::int64_t amax_exchanges_of_step(const Scenario& scenario);
// All exchanges of amaxes of a run, those of gathered codes too.
std::int64_t amax_exchanges(const Scenario& scenario);
std::int64_t collectives_of_passes(const Scenario& scenario, const ShardingPlan& plan,
                                   std::int64_t microbatches);
std::int64_t collectives_of_forward_passes(const Scenario& scenario, const ShardingPlan& plan,
                                           std::int64_t microbatches);

}  // namespace lockstep
