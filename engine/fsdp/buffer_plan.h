// Which memory the units of a sharded run may lie in. Planned before anything is allocated and
// never changed: a graph bakes the addresses of a unit's buckets.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/parameters/shard_layout.h"

namespace lockstep {

// The sizes of a unit's buckets in one block of memory, in bytes.
struct UnitMemory {
  std::vector<std::int64_t> offsets;  // For each bucket.
  std::int64_t bytes = 0;
};
UnitMemory memory_of_weights(const ShardLayout& layout, int unit);    // As the passes read them.
UnitMemory memory_of_gradients(const ShardLayout& layout, int unit);  // fp32

struct BufferPlan {
  std::vector<std::int64_t> slots;  // Bytes of each.
  // For each unit: the slots it may use; none where it needs none.
  std::vector<std::vector<int>> choices;
  std::vector<int> persistent;  // FSDP units that do not fit the pool and have a slot for good.
};

// Units whose turn it is to lie somewhere. With `double_buffer` the largest class of FSDP units
// with equal numbers of parameters (the first in the model, if there are several) takes turns in
// two slots, and the others have a slot each for good if `persist_buf_on_alloc_fail`. Units outside
// of these share with those of their very size as many slots as may be in use at once. Embedding
// and head, and all that is never let go, have a slot each.
BufferPlan plan_weights(const ShardLayout& layout, const Scenario::Fsdp& fsdp);
BufferPlan plan_gradients(const ShardLayout& layout, const Scenario::Fsdp& fsdp);

}  // namespace lockstep
