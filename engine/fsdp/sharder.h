// The sharding of one rank: the hooks around the modules of the model, and the work between steps.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/fsdp/gradient_buffers.h"
#include "engine/fsdp/weight_buffers.h"
#include "engine/plan/chunks.h"
#include "engine/plan/region_hooks.h"
#include "engine/plan/schedule.h"

namespace lockstep {

class Sharder {
 public:
  // `parameters` already has the memory of `layout`; the memory that the passes use is placed here.
  Sharder(const Stream& compute, const ShardCommunicators& communicators, const Scenario& scenario,
          const ShardLayout& layout, Parameters& parameters);

  // Every unit is gathered before its first module, released after its last one, and reduced after
  // its backward pass.
  // `has_head`: that of a tied embedding writes into the embedding's gradient.
  void attach(Hooks& hooks, bool has_head);
  void initialize() { gradients_.initialize(); }

  // Called before passes that are not known yet, if they run outside of a graph.
  void prefetch(const Chunk& first);
  // These surround passes: forward passes only, passes of some microbatches of a step, or passes
  // that complete the step. The second function makes compute wait for every reduction; the third
  // leaves that wait to the readers of the sums.
  enum class Passes : std::uint8_t { forward, some, complete };
  void begin(const std::vector<Pass>& passes, const std::vector<Chunk>& chunks);
  void end(Passes passes);

  // Around the passes of a capture, each through one unit that is gathered for it. The first
  // function returns memory of weights that were gathered for other passes, which the caller has
  // compute write again before it calls the second.
  std::vector<MemoryRange> set_aside();
  void put_back() { weights_.put_back(); }
  std::int64_t most_set_aside() const { return weights_.most_set_aside(); }
  void begin_unit(int unit) { weights_.begin({unit}); }
  void end_unit() const { weights_.end(); }
  int unit_of(int layer) const;

  // Compute waits for the sums of a step: those of one unit, or all of them.
  void await_gradients(int unit) { gradients_.wait_for(unit); }
  void await_gradients() { gradients_.finish(); }

  // Called after the shards of all units, or of one, have changed. Units that are resident between
  // steps are gathered again, so it helps if their shards change early.
  void refresh() { weights_.refresh(); }
  void refresh(int unit) { weights_.refresh(unit); }
  // Compute waits for the gather of a unit that is resident.
  void await_weights(int unit) { weights_.await(unit); }
  void order_after(const Stream& stream, int unit) { weights_.order_after(stream, unit); }
  bool is_resident(int unit) const { return weights_.is_resident(unit); }
  // These are called before and after a graph that contains gathers.
  void drain() { weights_.drain(); }

  // The ranks of the stage.
  Communicator& communicator() const { return communicator_; }
  const ShardLayout& layout() const { return layout_; }
  std::int64_t persistent_buffers() const { return persistent_buffers_; }
  std::int64_t late_gathers() const { return weights_.late_gathers(); }
  void append_addresses(std::vector<const void*>& table) const;

 private:
  void attach_unit(Hooks& hooks, int unit, int first, int last, bool has_head);

  Communicator& communicator_;
  const ShardLayout& layout_;
  const bool tied_;
  const Modules modules_;
  const std::int64_t persistent_buffers_;
  WeightBuffers weights_;
  GradientBuffers gradients_;
};

}  // namespace lockstep
