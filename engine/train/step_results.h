// Collects norm and losses of a step or an evaluation, those of other ranks included, with one wait
// for the device.
#pragma once

#include "engine/train/step_loop.h"
#include "engine/train/step_result.h"

namespace lockstep {

class StepResults {
 public:
  // `communicator` is of all ranks of the run; null without others.
  StepResults(Device& device, TensorPool& pool, const StepLoop& loop, const Scenario& scenario,
              Communicator* communicator);

  // Exchanges the losses of all ranks, which have equally many microbatches.
  void exchange(std::size_t microbatches) const;
  // Call it after exchange(). `norm` is [1, 2]: norm, clip; it is absent in an evaluation.
  void fetch(Tensor<float> norm, std::size_t microbatches, StepResult& result) const;

 private:
  int ranks() const { return communicator_ == nullptr ? 1 : communicator_->size(); }
  Tensor<float> room_for_all(TensorPool& pool, std::int64_t count) const;
  // Pairs of router losses in so many microbatches.
  std::size_t router_pairs(std::size_t microbatches) const {
    return loop_.router_losses() ? microbatches * router_stages_.size() : 0;
  }
  void add_up(std::size_t microbatches, const float* losses, const float* router_losses,
              StepResult& result) const;

  Device& device_;
  const StepLoop& loop_;
  Communicator* communicator_;
  const std::size_t data_, stages_;
  std::vector<std::size_t> router_stages_;  // The stage of each layer `E`.
  Tensor<float> losses_, router_losses_;  // The losses of every rank; absent if there is one rank.
  PinnedBuffer fetched_;                  // Norm, clip, losses, router losses.
};

}  // namespace lockstep
