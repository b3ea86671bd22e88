// Finds the live block of memory that contains a byte. Every operand of every call is looked up, so
// the addresses are contiguous for speed.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep {

class LiveBlocks {
 public:
  // A block that begins at the address of another one replaces it.
  void add(const void* base, std::size_t bytes, int number);
  void remove(const void* base);
  int at(const void* address) const;  // The block's number, or -1.

 private:
  struct Block {
    const std::byte* end;
    int number;
  };
  std::vector<const std::byte*> begins_;  // Ascending.
  std::vector<Block> blocks_;             // Likewise.
};

}  // namespace lockstep
