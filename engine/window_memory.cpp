#include "engine/window_memory.h"

#include <algorithm>

#include "kernels/require.h"

namespace lockstep {
namespace {

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void* WindowMemory::allocate(std::size_t bytes) {
  require(bytes > 0, "no memory lies in no window");
  const std::size_t size = rounded_up(bytes, kAlignment);
  auto found = std::find_if(windows_.begin(), windows_.end(),
                            [size](const Window& window) { return window.bytes - window.used >= size; });
  if (found == windows_.end()) {
    std::size_t all = 0;
    for (const Window& window : windows_) all += window.bytes;
    const std::size_t whole = rounded_up(std::max({size, all / 4, kLeast}), kPage);
    windows_.push_back({.memory = static_cast<std::byte*>(make_(whole)), .bytes = whole});
    found = windows_.end() - 1;
  }
  ++found->allocations;
  found->used += size;
  return found->memory + found->used - size;
}

void WindowMemory::release(const void* memory) noexcept {
  auto* const window = const_cast<Window*>(window_of(memory));
  require(window != nullptr, "what is released from a window lies in one");
  if (--window->allocations == 0) window->used = 0;
}

const WindowMemory::Window* WindowMemory::window_of(const void* memory) const {
  const auto* const byte = static_cast<const std::byte*>(memory);
  for (const Window& window : windows_) {
    if (byte >= window.memory && byte < window.memory + window.bytes) return &window;
  }
  return nullptr;
}

}  // namespace lockstep
