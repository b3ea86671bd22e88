#include "engine/memory/shared_memory.h"

#include <algorithm>

#include "kernels/core/fault.h"
#include "kernels/core/require.h"
#include "kernels/diagnostics/poison.h"

namespace lockstep {

void* SharedMemory::find(const std::string& name, int slot, std::int64_t bytes) {
  const PlannedTensor* const planned = plan_.find(name, slot);
  if (planned == nullptr) return nullptr;
  require(planned->tensor.bytes == bytes,
          "the plan knows the size of every tensor that shares memory");
  found_.insert(planned);
  return memory_.data + planned->offset;
}

std::int64_t SharedMemory::shared_bytes() const {
  std::int64_t bytes = 0;
  for (const PlannedTensor* const one : found_) bytes += one->bytes;
  return std::max<std::int64_t>(0, bytes - plan_.bytes);
}

void SharedMemory::poison(const Stream& stream) const {
  stream.submit(lockstep::poison(memory_.data, memory_.cols));
}

void SharedMemory::poison_written(const Stream& stream, int step, int slot) const {
  for (const PlannedTensor& one : plan_.tensors) {
    if (one.tensor.slot != slot && one.tensor.slot != LivingTensor::kAllSlots) continue;
    if (one.tensor.is_buffer) continue;
    const auto begins = [&](const Life& life) { return life.begin == step; };
    const auto lasts = [&](const Life& life) { return life.begin < step && step <= life.end; };
    const std::vector<Life>& lives = one.tensor.lives;
    if (std::ranges::any_of(lives, begins) && std::ranges::none_of(lives, lasts))
      stream.submit(lockstep::poison(memory_.data + one.offset, one.tensor.bytes));
  }
}

}  // namespace lockstep
