// The passes of a training step and of an evaluation: what runs eagerly, what a graph replays.
#pragma once

#include "engine/data/loader.h"
#include "engine/fsdp/sharder.h"
#include "engine/graphs/graph_set.h"
#include "engine/nn/expert_state.h"
#include "engine/parameters/parameters.h"
#include "engine/train/trainer_options.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

// What a run counts about itself; the harness holds it against what the scenario implies.
struct RunCounters {
  std::int64_t eager_fallbacks = 0;
  std::int64_t recaptures = 0;
  std::int64_t max_outstanding = 0;  // Microbatches between their passes at once, at most,
  std::int64_t slots_live = 0;       // and the slots that they hold, in every step at least.
  std::int64_t evaluations = 0;
  std::int64_t bytes_planned = 0, bytes_offloaded = 0, bytes_reloaded = 0;
  std::int64_t persistent_buffers = 0;
  std::int64_t late_gathers = 0;           // Outside of graphs.
  std::int64_t offloads_in_flight = 0;     // At most: copies to the host that compute had not waited for.
  std::int64_t offloads_delayed = 0;       // Groups whose copy came behind a later launch.
  std::int64_t spare_buffers = 0;          // Pinned ones of `pool_slack`.
  std::int64_t collectives_in_graphs = 0;  // Once a launch.
};

// Model, loader and graphs of one run, whatever the storage type of its activations.
class StepLoop {
 public:
  virtual ~StepLoop() = default;

  // The documents of a step. `continued`: the gradients so far are there, or they are zero; else they are zeroed.
  virtual void start(std::int64_t step, const StepData& data, bool continued) = 0;
  // Runs the passes of this rank's microbatches `first` to `end` - 1; their gradients and losses are ready when
  // `compute()` is done. All of a step at once may be one graph.
  virtual void train(std::int64_t step, int first, int end) = 0;
  virtual void evaluate(std::int64_t step, const StepData& data) = 0;

  virtual const Stream& compute() const = 0;
  virtual const Parameters& parameters() const = 0;
  virtual Loader& loader() = 0;
  virtual Tensor<float> losses() const = 0;  // [1, microbatches], of the passes that ran last.
  // [microbatches, 2 * layers E]: load-balancing and z loss of each such layer; empty where both are off.
  virtual Tensor<float> router_losses() const = 0;
  virtual const std::vector<ExpertState>& expert_states() const = 0;
  virtual RunCounters counters() const = 0;
  virtual const GraphSet& graphs() const = 0;
  // Null where nothing is sharded and nobody else takes part.
  virtual Sharder* sharder() = 0;
  virtual std::int64_t tokens() const = 0;  // Tokens of documents, of the data that was loaded last.
};

// For the first precision that the scenario lists. `options.communicator` is null unless something is sharded or there
// are other ranks.
std::unique_ptr<StepLoop> make_step_loop(Device& device, const Scenario& scenario, const TrainerOptions& options);

}  // namespace lockstep
