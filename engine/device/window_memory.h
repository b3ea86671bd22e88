// Memory of what ranks exchange, in few windows. A library registers a window with every rank, and
// finds the others' memory by how far an address lies into its own: so windows are of the same
// sizes, made in the same order, and allocations lie equally far into them, where all ranks
// allocate and release the same in the same order.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep {

class WindowMemory {
 public:
  static constexpr std::size_t kPage = std::size_t{2}
                                       << 20;     // Windows are whole ones: a driver maps no less.
  static constexpr std::size_t kAlignment = 256;  // As cudaMalloc's.
  using Make = std::function<void*(std::size_t bytes)>;  // Throws where there is no more.

  explicit WindowMemory(Make make) : make_(std::move(make)) {}
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  // Announces allocations of so many bytes, with each part rounded up to kAlignment. One window
  // holds them all, which is created unless one has room. An unannounced allocation gets a window
  // of its own if none has room. NCCL looks a window up in every call, and 2.28.3 does not find
  // those after the 32nd.
  void reserve(std::size_t bytes);
  // Allocates in the first window with room.
  void* allocate(std::size_t bytes);
  // A window is empty again when all of it has been released, and is reused at once: the caller has
  // waited for every exchange in it.
  void release(const void* memory) noexcept;
  // The size of the window that this allocation would create; 0 where an existing one has room.
  std::size_t new_window(std::size_t bytes) const;
  bool holds(const void* memory) const { return window_of(memory) != nullptr; }

 private:
  struct Window {
    std::byte* memory;
    std::size_t bytes, used = 0;
    int allocations = 0;
  };
  const Window* window_of(const void* memory) const;
  const Window* with_room(std::size_t bytes) const;
  Window& room_for(std::size_t bytes);

  Make make_;
  std::vector<Window> windows_;
};

}  // namespace lockstep
