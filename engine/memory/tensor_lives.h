// The tensors that may share memory (cuda_graph.shared_memory), and when each holds a value.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// From the first write to the last access, both inclusive, in steps of the time line of
// engine/offload/plan.h: of n segments the embedding's forward pass is step -1, that of segment i
// step i, the head's step n; the head's backward pass is step n + 1, that of segment i step 2n + 1
// - i, and the embedding's step 2n + 2. The passes of a segment are one launch, so what they access
// is alive in all of the step.
struct Life {
  int begin = 0;
  int forward_end = 0;  // In an evaluation, which has forward passes alone. Before `begin`: none.
  int end = 0;
  bool in_evaluations() const { return forward_end >= begin; }
  friend auto operator<=>(const Life&, const Life&) = default;
};

// A tensor of one slot, or one that all slots use.
struct LivingTensor {
  static constexpr int kAllSlots = -1;
  std::string name;  // As a judge knows it, "layers.0.qkv"; of a gradient "layers.0.dqkv".
  int slot = kAllSlots;
  std::int64_t bytes = 0;
  bool is_buffer = false;  // Offloading uses it: copies write it too.
  // The name of the one tensor that all layers and slots use in its place without shared memory; ""
  // for a tensor that has memory of its own then too.
  std::string common = {};
  std::vector<Life> lives = {};
};

// All of them for the first precision that the scenario lists, in order of execution, slot by slot.
// Tensors that are offloaded lie in the buffers of the offload plan, which are listed in their
// place. Absent are tensors that are computed again (model.recompute), whose memory all layers and
// slots share already.
std::vector<LivingTensor> living_tensors(const Scenario& scenario);
// For the gradient of the residual stream in front of each layer, and behind the last, the number
// of its tensor. Within a segment a layer writes where its successor has read, since two are enough
// for any number of layers.
std::vector<int> residual_gradients(const Scenario& scenario);
std::string residual_gradient_name(int number);
// The name of a buffer of the offload plan, all sets counted through.
std::string bin_name(int bin);

}  // namespace lockstep
