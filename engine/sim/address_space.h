// Addresses that follow from the order of calls alone, with zeros in memory that was never taken.
// An op that reads beyond its memory, or memory that moved, then reads the same in every process,
// so that a failure can be replayed.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace lockstep {

class AddressSpace {
 public:
  static constexpr std::size_t kAlignment = 256;  // As cudaMalloc guarantees.

  AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;
  ~AddressSpace();

  // `bytes` rounded up to kAlignment, with any content; null when the machine has no more.
  std::byte* take(std::size_t bytes);
  // Returns a block of take(), with the same size. It is taken again for a block of that size only.
  void give_back(std::byte* block, std::size_t bytes);

 private:
  bool grow(std::size_t bytes);

  std::size_t place_ = 0;       // Among the spaces that are open in this process.
  std::byte* begin_ = nullptr;  // For the first mapping: they follow each other.
  std::byte* next_ = nullptr;   // What was never taken,
  std::byte* end_ = nullptr;    // up to here.
  std::map<std::size_t, std::vector<std::byte*>> free_;  // By size.
};

}  // namespace lockstep
