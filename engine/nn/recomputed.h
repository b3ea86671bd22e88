// Activation recomputation (model.recompute): tensors that the backward pass computes again instead
// of having them saved. The forward pass writes them for the ops that follow at once, and the
// backward pass writes the same bits before it reads them. One stream runs all layers and slots one
// after the other, so they share this memory.
#pragma once

#include "engine/tensors/tensor_pool.h"
#include "scenarios/scenario.h"

namespace lockstep {

// A tensor that is absent here is saved by each slot.
template <class T>
struct Recomputed {
  Recomputed(TensorPool& pool, const Scenario& scenario);
  Tensor<T> norm;        // [T, d]: the input of every mixer.
  Tensor<T> mlp_act;     // [T, h]
  Tensor<T> moe_act;     // [R, h]: in the experts' buffer.
  Tensor<T> shared_act;  // [T, h]: of the shared expert.
};

}  // namespace lockstep
