#include "engine/memory/passing_tensors.h"

#include <algorithm>

namespace lockstep {

void PassingTensors::add(Device& device, const MemoryPlan& plan, int slot, int last_step,
                         const std::vector<NamedTensor>& names) {
  for (const NamedTensor& named : names) {
    const PlannedTensor* const planned = plan.find(named.name, slot);
    if (planned == nullptr) continue;
    const Life& life = planned->tensor.lives.front();
    if (life.end != life.forward_end) continue;  // The backward pass reads it.
    PinnedBuffer& to = pinned_.emplace_back(device, named.tensor.bytes());
    copied_.try_emplace({slot, named.name},
                        Copied{named.tensor, std::min(life.end, last_step), &to});
  }
}

void PassingTensors::copy(const Stream& stream, int step, int slot) const {
  for (const auto& [key, one] : copied_) {
    if (key.first != slot || one.step != step) continue;
    stream.copy(one.to->data(), one.from.data, one.from.bytes(), CopyKind::device_to_host);
  }
}

void PassingTensors::point_to_copies(std::vector<NamedTensor>& tensors, int slot) const {
  for (NamedTensor& named : tensors) {
    const auto found = copied_.find({slot, named.name});
    if (found == copied_.end()) continue;
    named.tensor.data = found->second.to->data();
    named.tensor.on_host = true;
  }
}

}  // namespace lockstep
