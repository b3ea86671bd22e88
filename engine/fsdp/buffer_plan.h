// The memory of the units of a sharded run. It is planned before anything is allocated and never
// changes, because a graph bakes in the addresses of a unit's buckets.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/parameters/shard_layout.h"

namespace lockstep {

// The layout of a unit's buckets in one block of memory, in bytes.
struct UnitMemory {
  std::vector<std::int64_t> offsets;  // One for each bucket.
  std::int64_t bytes = 0;
};
UnitMemory memory_of_weights(const ShardLayout& layout,
                             int unit);  // In the precision that the passes read.
UnitMemory memory_of_gradients(const ShardLayout& layout, int unit);  // In fp32.

struct BufferPlan {
  std::vector<std::int64_t> slots;  // The bytes of each slot.
  // The slots that each unit may use; empty if it needs none.
  std::vector<std::vector<int>> choices;
  std::vector<int> persistent;  // FSDP units outside the pool that have a slot of their own.
};

// Assigns slots to units. With `double_buffer` the largest class of FSDP units with equal numbers
// of parameters (the first one in the model if several are equal) alternates between two slots, and
// the other FSDP units have a slot each if `persist_buf_on_alloc_fail` is set. All remaining units
// share slots with units of exactly the same size, as many as may be in use at once. The embedding,
// the head and every unit that is never released have a slot each.
BufferPlan plan_weights(const ShardLayout& layout, const Scenario::Fsdp& fsdp);
BufferPlan plan_gradients(const ShardLayout& layout, const Scenario::Fsdp& fsdp);

}  // namespace lockstep
