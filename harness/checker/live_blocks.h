// Finds the live block of memory that contains a byte. Every operand of every call is looked up, so
// the addresses are contiguous for speed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// `Value` is what the owner knows a block by; `kNone` stands for no block.
template <class Value, Value kNone>
class LiveBlocks {
 public:
  // A block that begins at the address of another one replaces it.
  void add(const void* base, std::size_t bytes, Value value) {
    const auto* begin = static_cast<const std::byte*>(base);
    const std::byte* end = begin + bytes;
    auto place = std::lower_bound(begins_.begin(), begins_.end(), begin);
    auto block = blocks_.begin() + (place - begins_.begin());
    if (place != begins_.end() && *place == begin) {
      *block = {end, value};
    } else {
      block = blocks_.insert(block, {end, value});
      place = begins_.insert(place, begin);
    }
    // Removed blocks that began within this one would hide its bytes behind them.
    const auto behind = std::lower_bound(++place, begins_.end(), end);
    blocks_.erase(block + 1, block + 1 + (behind - place));
    begins_.erase(place, behind);
  }
  // The block stays as one of no length, since a run removes thousands at its end, and each erasure
  // would move those behind it.
  void remove(const void* base) {
    const auto* begin = static_cast<const std::byte*>(base);
    const auto place = std::lower_bound(begins_.begin(), begins_.end(), begin);
    if (place == begins_.end() || *place != begin) return;
    *(blocks_.begin() + (place - begins_.begin())) = {begin, kNone};
  }
  Value at(const void* address) const {
    const auto* byte = static_cast<const std::byte*>(address);
    if (begins_.empty() || byte < begins_.front()) return kNone;
    // The last block that begins at or before the byte. No branch depends on the addresses, so the
    // processor mispredicts none.
    const std::byte* const* begin = begins_.data();
    for (std::size_t left = begins_.size(); left > 1;) {
      const std::size_t half = left / 2;
      begin += begin[half] <= byte ? half : 0;
      left -= half;
    }
    const Block& block = blocks_[static_cast<std::size_t>(begin - begins_.data())];
    return byte < block.end ? block.value : kNone;
  }

 private:
  struct Block {
    const std::byte* end;
    Value value;
  };
  std::vector<const std::byte*> begins_;  // Ascending.
  std::vector<Block> blocks_;             // Likewise.
};

}  // namespace lockstep
