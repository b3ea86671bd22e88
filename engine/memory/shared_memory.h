// The device memory that the tensors of all slots of a stage share (cuda_graph.shared_memory).
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "engine/memory/memory_plan.h"
#include "engine/tensors/tensor_pool.h"

namespace lockstep {

class SharedMemory {
 public:
  // All of it is one buffer of `pool`.
  SharedMemory(TensorPool& pool, const Scenario& scenario, int stage)
      : plan_(plan_memory(scenario, stage)), memory_(pool.make<std::uint8_t>(1, plan_.bytes)) {}

  // The address of a tensor of that slot, of all chunks, or of one of all slots; null if the plan
  // has none.
  void* find(const std::string& name, int slot, std::int64_t bytes);

  // Takes away the value of all tensors.
  void poison(const Stream& stream) const;
  // The same of those that a step begins to write: what they hold is another tensor's, which is no
  // longer needed.
  void poison_written(const Stream& stream, int step, int slot) const;

  // Bytes by which the tensors that were found exceed the memory.
  std::int64_t shared_bytes() const;
  const MemoryPlan& plan() const { return plan_; }

 private:
  MemoryPlan plan_;
  Tensor<std::uint8_t> memory_;
  std::set<const PlannedTensor*> found_;
};

}  // namespace lockstep
