// Reduces gradients over the ranks: an exchange, then the fold of arithmetic.md 1, on the stream
// "reduce".
//
// Under optim_grads and optim_grads_params each unit's backward pass writes its g_m into a slot,
// and the shard's accumulator takes those of all ranks, in order, before the next microbatch's. A
// slot is FREE, then WRITING, REDUCING and FREE again when compute has waited for the reduction.
// Under no_shard and optim each rank has folded its own microbatches by then, and the folds are
// added once a step. With `reduction: nccl` the library adds up the ranks' in place of exchange and
// fold.
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/fsdp/buffer_plan.h"
#include "engine/parameters/parameters.h"
#include "kernels/core/at.h"

namespace lockstep {

class GradientBuffers {
 public:
  GradientBuffers(const Stream& compute, const Stream& gather, Communicator& communicator,
                  const Scenario::Fsdp& fsdp, const ShardLayout& layout, Parameters& parameters);
  ~GradientBuffers();  // Waits for what is under way.

  void initialize();     // Padding is exchanged too, so it has a value.
  void enter(int unit);  // Compute may write its gradients.
  // Compute has written them; `last`: those of the step's last microbatch.
  void leave(int unit, bool last);
  void wait_for(int unit);  // Compute waits for the reductions of a unit,
  void finish();            // or for every one.

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
  // A bucket whose g_m of every rank comes together with others of its unit.
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
  void add_up(const Arrival& arrival, Tensor<float> total, int first_rank) const;
  const Bucket& bucket(int index) const { return at(layout_.buckets, index); }
  const BucketMemory& memory(int index) const { return at(parameters_.buckets(), index); }

  const Stream &compute_, &gather_;
  Communicator& communicator_;
  const ShardLayout& layout_;
  Parameters& parameters_;
  const Sharding strategy_;
  const bool library_sums_;
  const BufferPlan plan_;
  TensorPool pool_;
  Tensor<float> received_;  // What the ranks sent of the shards of some buckets.
  Stream stream_;
  Event written_, reduced_;  // no_shard, optim.
  bool reducing_ = false;    // Compute has not waited for that.
  Event summed_, gathered_;  // no_shard.
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> in_flight_;  // Reducing, oldest first.
};

}  // namespace lockstep
