// What a step or an evaluation comes to: norm and losses, fetched by one wait. With other ranks their losses too.
#pragma once

#include "engine/step_loop.h"

namespace lockstep {

class StepResults {
 public:
  // `communicator` is null where nobody else takes part.
  StepResults(Device& device, TensorPool& pool, const StepLoop& loop, Communicator* communicator);

  // Of as many microbatches on this rank; `norm` is [1, 2]: norm, clip, or absent in an evaluation, which has none.
  void fetch(Tensor<float> norm, std::size_t microbatches, StepResult& result) const;

 private:
  int ranks() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  Tensor<float> room_for_all(TensorPool& pool, std::int64_t count) const;
  const float* collect(const char* what, Tensor<float> own, Tensor<float> all, std::size_t count) const;
  void add_up(std::size_t microbatches, const float* losses, const float* router_losses, StepResult& result) const;

  Device& device_;
  const StepLoop& loop_;
  Communicator* communicator_;
  Tensor<float> losses_, router_losses_;  // Of every rank; absent where there is one.
  PinnedBuffer fetched_;                  // Norm, clip, losses, router losses.
};

}  // namespace lockstep
