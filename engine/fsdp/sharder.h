// Sharding of one rank: what its hooks do around the modules of the model, and what happens between
// the steps.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/fsdp/gradient_buffers.h"
#include "engine/fsdp/weight_buffers.h"
#include "engine/plan/region_hooks.h"
#include "engine/plan/schedule.h"

namespace lockstep {

class Sharder {
 public:
  // `parameters` has the memory of `layout`; its passes' memory is placed here.
  Sharder(const Stream& compute, Communicator& communicator, const Scenario& scenario,
          const ShardLayout& layout, Parameters& parameters);

  // Every unit is gathered before its first module and let go behind its last one, and reduced
  // behind its backward pass.
  void attach(Hooks& hooks);
  void initialize() { gradients_.initialize(); }

  // Before passes that are not known yet, if they run outside of a graph.
  void prefetch() { weights_.prefetch(); }
  // Around passes: forward ones alone, of some microbatches of a step, or those that complete it.
  // The second one makes compute wait for every reduction; the third leaves that to what reads the
  // sums.
  enum class Passes : std::uint8_t { forward, some, complete };
  void begin(const std::vector<Pass>& passes);
  void end(Passes passes);

  // Compute waits for the sums of a step: those of one unit, or all.
  void await_gradients(int unit) { gradients_.wait_for(unit); }
  void await_gradients() { gradients_.finish(); }

  // Behind what changed the shards, all or those of a unit. Some units stay whole between steps,
  // and the sooner these change the better.
  void refresh() { weights_.refresh(); }
  void refresh(int unit) { weights_.refresh(unit); }
  bool is_resident(int unit) const { return weights_.is_resident(unit); }
  // Before a graph that holds gathers, and behind it.
  void drain() { weights_.drain(); }

  Communicator& communicator() const { return communicator_; }
  const ShardLayout& layout() const { return layout_; }
  std::int64_t persistent_buffers() const { return persistent_buffers_; }
  std::int64_t late_gathers() const { return weights_.late_gathers(); }
  void append_addresses(std::vector<const void*>& table) const;

 private:
  void attach_unit(Hooks& hooks, int unit, int first, int last);

  Communicator& communicator_;
  const ShardLayout& layout_;
  const bool tied_;
  const Modules modules_;
  const std::int64_t persistent_buffers_;
  WeightBuffers weights_;
  GradientBuffers gradients_;
};

}  // namespace lockstep
