#include "engine/device/block_memory.h"

#include <algorithm>

namespace lockstep {

void* BlockMemory::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > kLargest) return nullptr;
  const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (taken_.empty() || used_ + size > kBlock) {
    if (spare_.empty()) spare_.push_back(make_(kBlock));
    taken_.push_back(spare_.back());
    spare_.pop_back();
    used_ = 0;
  }
  void* const memory = static_cast<std::byte*>(taken_.back()) + used_;
  used_ += size;
  return memory;
}

bool BlockMemory::holds(const void* memory) const {
  const auto* byte = static_cast<const std::byte*>(memory);
  return std::any_of(taken_.begin(), taken_.end(), [byte](const void* block) {
    const auto* first = static_cast<const std::byte*>(block);
    return byte >= first && byte < first + kBlock;
  });
}

void BlockMemory::give_back() {
  spare_.insert(spare_.end(), taken_.rbegin(), taken_.rend());
  taken_.clear();
}

}  // namespace lockstep
