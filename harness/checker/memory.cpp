#include "harness/checker/memory.h"

namespace lockstep {

void CheckedMemory::allocate(const void* base, std::size_t bytes, bool pinned) {
  const int id = static_cast<int>(all_.size());
  all_.push_back(std::make_unique<Allocation>(id, base, bytes, pinned));
  live_[all_.back()->base] = id;
}

void CheckedMemory::release(Allocation& allocation) {
  allocation.live = false;
  allocation.shadow.clear();
  allocation.undefined = Undefined(0);
  live_.erase(allocation.base);
}

Allocation* CheckedMemory::live_at(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  const auto after = live_.upper_bound(byte);
  if (after == live_.begin()) return nullptr;
  Allocation& found = (*this)[std::prev(after)->second];
  return byte < found.base + found.bytes ? &found : nullptr;
}

const Allocation* CheckedMemory::last_at(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  for (auto one = all_.rbegin(); one != all_.rend(); ++one) {
    if (!(*one)->live && byte >= (*one)->base && byte < (*one)->base + (*one)->bytes) return one->get();
  }
  return nullptr;
}

}  // namespace lockstep
