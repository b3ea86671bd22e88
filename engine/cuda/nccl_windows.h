// Memory that NCCL knows on every rank, so that copy engines exchange what lies in it: gathers, and
// exchanges by ncclAlltoAll. All of it is one communicator's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/cuda/nccl_library.h"
#include "engine/device/window_memory.h"

namespace lockstep {

class NcclWindows {
 public:
  // Told the bytes of windows that are made, and below zero of those that are given back.
  using Takes = std::function<void(std::int64_t bytes)>;
  NcclWindows(NcclComm comm, int size, Takes takes);
  // Gives everything back: once nothing is under way, and before the communicator goes. What failed
  // is not said.
  void close() noexcept;

  // Ranks that say the same, and not "", reach one another's memory.
  const std::string& reach() const { return reach_; }
  bool have_room(std::size_t bytes) const;
  void reserve(std::size_t bytes) { memory_.reserve(bytes); }
  void* allocate(std::size_t bytes) { return memory_.allocate(bytes); }
  void release(const void* memory) noexcept { memory_.release(memory); }
  bool hold(const void* memory) const { return memory_.holds(memory); }

 private:
  struct Window {
    void* memory;
    void* handle;
    std::size_t bytes;
  };
  void* make(std::size_t bytes);
  void give_back(const Window& window) noexcept;
  void warm_up(std::byte* memory) const;

  const NcclComm comm_;
  const std::string reach_;
  const Takes takes_;
  std::vector<Window> made_;
  WindowMemory memory_;
};

}  // namespace lockstep
