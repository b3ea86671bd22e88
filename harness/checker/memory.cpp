#include "harness/checker/memory.h"

namespace lockstep {

void CheckedMemory::allocate(const void* base, std::size_t bytes, bool pinned) {
  const int id = static_cast<int>(all_.size());
  all_.push_back(std::make_unique<Allocation>(id, base, bytes, pinned));
  live_.add(base, bytes, all_.back().get());
}

void CheckedMemory::release(Allocation& allocation) {
  allocation.live = false;
  allocation.shadow.clear();
  allocation.undefined = Undefined(0);
  live_.remove(allocation.base);
}

const Allocation* CheckedMemory::last_at(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  for (auto one = all_.rbegin(); one != all_.rend(); ++one) {
    if (!(*one)->live && byte >= (*one)->base && byte < (*one)->base + (*one)->bytes)
      return one->get();
  }
  return nullptr;
}

}  // namespace lockstep
