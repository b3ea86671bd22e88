// Small allocations of one open device, side by side in large blocks that the process keeps: a case
// of a campaign makes some hundreds of them, and on a GPU that several processes share a call of
// the driver each costs more than the case. Who tells judges of an allocation, and what bounds it
// has, is not changed by where it lies.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class BlockMemory {
 public:
  static constexpr std::size_t kBlock = std::size_t{16} << 20;
  static constexpr std::size_t kLargest = kBlock / 16;  // Larger ones are not worth it.
  static constexpr std::size_t kAlignment = 256;        // As cudaMalloc's.
  using Make = void* (*)(std::size_t bytes);            // Throws where there is no more.

  // `spare` keeps blocks between devices, and must outlive this.
  BlockMemory(std::vector<void*>& spare, Make make) : spare_(spare), make_(make) {}
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  // Null for none and for too many: the caller has its own way for these. What was handed out is
  // never handed out again before give_back(): work that nobody waited for could still write it.
  void* allocate(std::size_t bytes);
  bool holds(const void* memory) const;

  // Once the device has done all that was asked of it.
  void give_back();

 private:
  std::vector<void*>& spare_;
  Make make_;
  std::vector<void*> taken_;
  std::size_t used_ = 0;  // For the last one taken.
};

}  // namespace lockstep
