// What is computed again in the backward pass instead of being saved (model.recompute). The forward pass writes it for
// the ops that follow at once, the backward pass writes the same bits before it reads them. One stream runs all layers
// and slots one after the other, so that they share the memory; a graph that ends in between leaves it to the next.
#pragma once

#include "engine/tensors/tensor_pool.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Absent tensors are saved by each slot.
template <class T>
struct Recomputed {
  Recomputed(TensorPool& pool, const Scenario& scenario);
  Tensor<T> norm;        // [T, d], the input of every mixer.
  Tensor<T> mlp_act;     // [T, h]
  Tensor<T> moe_act;     // [R, h], rows of the experts' buffer,
  Tensor<T> shared_act;  // [T, h], and of the shared expert.
};

}  // namespace lockstep
