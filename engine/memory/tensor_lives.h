// The tensors that may share memory (cuda_graph.shared_memory), and when each holds a value.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// From the first write to the last access, both inclusive, in steps of engine/memory/time_line.h.
// The passes of a segment are one launch, so what they access is alive in all of the step.
struct Life {
  int begin = 0;
  int forward_end = 0;  // In an evaluation, which has forward passes alone. Before `begin`: none.
  int end = 0;
  bool in_evaluations() const { return forward_end >= begin; }
  friend auto operator<=>(const Life&, const Life&) = default;
};

// A tensor of one slot, or one that all slots of a chunk use.
struct LivingTensor {
  static constexpr int kAllSlots = -1;
  std::string name;  // As a judge knows it, "layers.0.qkv"; of a gradient "layers.0.dqkv".
  int chunk = 0;
  int slot = kAllSlots;  // Counted through all chunks (engine/plan/chunks.h).
  std::int64_t bytes = 0;
  bool is_buffer = false;        // Offloading uses it: copies write it too.
  bool is_always_alive = false;  // Whatever its lives are.
  // The name of the one tensor that all layers and slots use in its place without shared memory; ""
  // for a tensor that has memory of its own then too.
  std::string common = {};
  std::vector<Life> lives = {};
};

// All of them that a stage has, for the first precision that the scenario lists, in order of
// execution, chunk by chunk and slot by slot. Tensors that are offloaded lie in the buffers of the
// offload plan, which are listed in their place. Absent are tensors that are computed again
// (model.recompute), whose memory all layers and slots share already, and what another stage sends.
std::vector<LivingTensor> living_tensors(const Scenario& scenario, int stage = 0);
// For the gradient of the residual stream in front of each layer, and behind the last, the number
// of its tensor. Within a segment a layer writes where its successor has read, since two are enough
// for any number of layers.
std::vector<int> residual_gradients(const Scenario& scenario);
std::string residual_gradient_name(int number);
// The name of a buffer of a chunk's offload plan, all sets counted through.
std::string bin_name(int chunk, int bin);

}  // namespace lockstep
