// What a step or an evaluation comes to: norm and losses, fetched by one wait. With other ranks their losses too.
#pragma once

#include "engine/train/step_loop.h"
#include "engine/train/step_result.h"

namespace lockstep {

class StepResults {
 public:
  // `communicator` is null where nobody else takes part.
  StepResults(Device& device, TensorPool& pool, const StepLoop& loop, Communicator* communicator);

  // Every rank tells the others the losses of as many microbatches.
  void exchange(std::size_t microbatches) const;
  // Behind that; `norm` is [1, 2]: norm, clip, or absent in an evaluation, which has none.
  void fetch(Tensor<float> norm, std::size_t microbatches, StepResult& result) const;

 private:
  int ranks() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  Tensor<float> room_for_all(TensorPool& pool, std::int64_t count) const;
  // Router losses of as many microbatches: pairs.
  std::size_t router_pairs(std::size_t microbatches) const {
    return loop_.router_losses() ? microbatches * loop_.expert_states().size() : 0;
  }
  void add_up(std::size_t microbatches, const float* losses, const float* router_losses, StepResult& result) const;

  Device& device_;
  const StepLoop& loop_;
  Communicator* communicator_;
  Tensor<float> losses_, router_losses_;  // Of every rank; absent where there is one.
  PinnedBuffer fetched_;                  // Norm, clip, losses, router losses.
};

}  // namespace lockstep
