// Reduces gradients over the ranks on the stream "reduce": an exchange, then the fold of
// arithmetic.md 1.
//
// Under optim_grads and optim_grads_params the backward pass of each unit writes its g_m into a
// slot, and the shard's accumulator adds the parts of all ranks in order before those of the next
// microbatch. The states of a slot are FREE, WRITING, REDUCING, and FREE again once compute has
// waited for the reduction. Under no_shard and optim each rank has already folded its own
// microbatches, and the folds are added once a step. With `reduction: nccl` the library's sum
// replaces exchange and fold.
#pragma once

#include <memory>
#include <vector>

#include "engine/fsdp/buffer_plan.h"
#include "engine/fsdp/shard_communicators.h"
#include "engine/parameters/parameters.h"
#include "kernels/core/at.h"

namespace lockstep {

class GradientBuffers {
 public:
  GradientBuffers(const Stream& compute, const Stream& gather,
                  const ShardCommunicators& communicators, const Scenario::Fsdp& fsdp,
                  const ShardLayout& layout, Parameters& parameters);
  ~GradientBuffers();  // Waits for reductions that are under way.

  void initialize();     // Padding is exchanged too, so it needs a value.
  void enter(int unit);  // Compute may write the gradients of the unit.
  // Compute has written them. `last`: this is the step's last microbatch.
  void leave(int unit, bool last);
  void wait_for(int unit);  // Compute waits for the reductions of a unit.
  void finish();            // Compute waits for all reductions.

  void append_addresses(std::vector<const void*>& table) const { pool_.append_addresses(table); }

 private:
  enum class State : std::uint8_t { free, writing, reducing };
  struct Slot {
    explicit Slot(Device& device)
        : written(device, "gradients written"), reduced(device, "gradients reduced") {}
    float* memory = nullptr;
    State state = State::free;
    int unit = -1;
    Event written, reduced;
  };
  bool at_once() const {
    return strategy_ == Sharding::optim_grads || strategy_ == Sharding::optim_grads_params;
  }
  Slot& slot_for(int unit);
  void let_go(Slot& slot);
  void place(int unit, const Slot& slot);
  // A bucket whose g_m is received from every rank together with other buckets of its unit.
  struct Arrival {
    int bucket;
    const float* from;
    Tensor<float> received;
  };
  std::vector<std::vector<Arrival>> arrivals(int unit, const Slot* slot) const;
  void reduce_microbatch(int unit, const Slot& slot);
  void reduce_step(int unit);
  void total_in_order(const std::vector<Arrival>& arrivals);
  void gather_totals(const std::vector<Arrival>& arrivals);
  void total_by_library(const std::vector<Arrival>& arrivals);
  void exchange(const std::vector<Arrival>& arrivals);
  void exchange_sources(Communicator& communicator, const Arrival& arrival);
  void add_up(const Arrival& arrival, Tensor<float> total, int first_rank) const;
  void add_up_sources(const Arrival& arrival, Tensor<float> total, int first_rank) const;
  const Event& reduced(int unit) const {
    return at(reduced_, strategy_ == Sharding::optim ? unit : 0);
  }
  const Bucket& bucket(int index) const { return at(layout_.buckets, index); }
  const BucketMemory& memory(int index) const { return at(parameters_.buckets(), index); }

  const Stream &compute_, &gather_;
  const ShardCommunicators communicators_;
  const ShardLayout& layout_;
  Parameters& parameters_;
  const Sharding strategy_;
  const bool library_sums_;
  const BufferPlan plan_;
  TensorPool pool_;
  Tensor<float> received_;  // The parts of the shards of some buckets that the ranks sent.
  Stream stream_;
  // Used under no_shard and optim.
  Event written_;
  std::vector<Event> reduced_;  // Under optim one for each unit.
  std::vector<int> reducing_;   // Units whose reduction compute has not waited for, oldest first.
  Event summed_, gathered_;     // Used under no_shard.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> in_flight_;  // Slots that are REDUCING, oldest first.
};

}  // namespace lockstep
