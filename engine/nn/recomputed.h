// Activation recomputation (model.recompute): tensors that the backward pass computes again instead
// of having them saved. The forward pass writes them for the ops that follow at once, and the
// backward pass writes the same bits before it reads them. One stream runs all layers and slots one
// after the other, so they share this memory. So do the inputs of fp8 products of which slots save
// the codes alone, and which nothing computes again.
#pragma once

#include <map>

#include "engine/tensors/tensor_pool.h"
#include "kernels/core/fp8.h"
#include "scenarios/scenario.h"

namespace lockstep {

// A tensor that is absent here is saved by each slot.
template <class T>
struct Recomputed {
  Recomputed(TensorPool& pool, const Scenario& scenario);
  // Gives the inputs that slots do not save their memory: `free`, which no forward pass uses, if it
  // is large enough.
  void place_passing(TensorPool& pool, Tensor<T> free);
  bool core_attn = false, mlp = false, mamba = false, moe = false;  // Whole modules.

  Tensor<T> norm;   // [T, d]: the input of every mixer.
  Tensor<T> mixed;  // [T, d]: the output of a mixer that is one whole module.

  Tensor<T> core;     // [T, heads * hd]
  Tensor<float> lse;  // [T, heads]

  Tensor<T> mlp_fc1, mlp_act;  // [T, gates * h], [T, h]

  Tensor<T> in_proj, conv, scan, gated;  // [T, columns of the layer's products]
  Tensor<float> gated_rstd;              // [T, groups]

  // The router's floats: logits and scores [T, E], lse [1, T], weights [T, K].
  Tensor<float> router_logits, router_scores, router_lse, router_weights;
  // In the experts' buffer: [R, d], [R, gates * h], [R, h], [R, d].
  Tensor<T> dispatched, expert_fc1, moe_act, expert_out;
  Tensor<T> owned;  // [R, d]: what the experts of this rank read, if they lie on several ranks.
  // [T, gates * h], [T, h], [T, d]: of the shared expert.
  Tensor<T> shared_fc1, shared_act, shared_out;

  // The codes, transposed, of an input that is saved itself, or computed again, in fp8 numerics; an
  // absent tensor for a layer that saves the codes.
  Tensor<e4m3> codes_of(Fp8Layer layer) const {
    const auto found = codes_.find(layer);
    return found == codes_.end() ? Tensor<e4m3>{} : found->second;
  }
  // The input of a layer that slots do not save, [T, in]; absent if they do. Only forward passes
  // write and read it.
  Tensor<T> passing(Fp8Layer layer) const {
    const auto found = passing_.find(layer);
    return found == passing_.end() ? Tensor<T>{} : found->second;
  }
  // For a planted fault, the words of a parameter's operands in all slots; absent otherwise.
  Tensor<std::uint32_t> words_of_all_slots(int parameter) const {
    const auto found = words_.find(parameter);
    return found == words_.end() ? Tensor<std::uint32_t>{} : found->second;
  }
  // Whether the layer's product is computed again.
  bool has_product(Fp8Layer layer) const {
    using enum Fp8Layer;
    const bool of_moe = layer == expert_fc1 || layer == expert_fc2 || layer == shared_fc1;
    return (layer == mlp_fc1 && mlp) || (layer == mamba_in_proj && mamba) || (of_moe && moe);
  }

 private:
  void add_codes(TensorPool& pool, const Scenario& scenario);
  void add_mamba(TensorPool& pool, const Scenario& scenario);
  void add_experts(TensorPool& pool, const Scenario& scenario);

  std::map<Fp8Layer, Tensor<e4m3>> codes_;
  std::map<Fp8Layer, Tensor<T>> passing_;
  std::map<int, Tensor<std::uint32_t>> words_;
};

}  // namespace lockstep
