// Memory of what ranks exchange, in a few large windows. A library registers a window with every rank, and finds the
// others' memory by how far an address lies into its own: so windows are of the same sizes, made in the same order, and
// allocations lie equally far into them, where all ranks allocate and release the same in the same order.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep {

class WindowMemory {
 public:
  static constexpr std::size_t kLeast = std::size_t{64} << 20;  // Bytes of a window.
  static constexpr std::size_t kPage = std::size_t{2} << 20;    // Windows are whole ones: a driver maps no less.
  static constexpr std::size_t kAlignment = 256;                // As cudaMalloc's.
  using Make = std::function<void*(std::size_t bytes)>;         // Throws where there is no more.

  explicit WindowMemory(Make make) : make_(std::move(make)) {}
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  // The first window with room, else a new one: as large as a quarter of all before it at least, so that they stay few.
  void* allocate(std::size_t bytes);
  // A window of which all has been released is empty again.
  void release(const void* memory) noexcept;
  bool holds(const void* memory) const { return window_of(memory) != nullptr; }

 private:
  struct Window {
    std::byte* memory;
    std::size_t bytes, used = 0;
    int allocations = 0;
  };
  const Window* window_of(const void* memory) const;

  Make make_;
  std::vector<Window> windows_;
};

}  // namespace lockstep
