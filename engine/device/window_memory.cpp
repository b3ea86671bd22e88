#include "engine/device/window_memory.h"

#include "kernels/core/require.h"

namespace lockstep {
namespace {

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

void WindowMemory::reserve(std::size_t bytes) { room_for(bytes); }

void* WindowMemory::allocate(std::size_t bytes) {
  require(bytes > 0, "no memory lies in no window");
  Window& window = room_for(bytes);
  ++window.allocations;
  void* const memory = window.memory + window.used;
  window.used += rounded_up(bytes, kAlignment);
  return memory;
}

std::size_t WindowMemory::new_window(std::size_t bytes) const {
  return with_room(bytes) != nullptr ? 0 : rounded_up(bytes, kPage);
}

const WindowMemory::Window* WindowMemory::with_room(std::size_t bytes) const {
  for (const Window& window : windows_) {
    if (window.bytes - window.used >= rounded_up(bytes, kAlignment)) return &window;
  }
  return nullptr;
}

WindowMemory::Window& WindowMemory::room_for(std::size_t bytes) {
  if (const std::size_t whole = new_window(bytes); whole > 0) {
    return windows_.emplace_back(
        Window{.memory = static_cast<std::byte*>(make_(whole)), .bytes = whole});
  }
  return *const_cast<Window*>(with_room(bytes));
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
