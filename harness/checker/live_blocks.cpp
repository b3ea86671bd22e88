#include "harness/checker/live_blocks.h"

#include <algorithm>

namespace lockstep {

void LiveBlocks::add(const void* base, std::size_t bytes, int number) {
  const auto* begin = static_cast<const std::byte*>(base);
  const std::byte* end = begin + bytes;
  auto place = std::lower_bound(begins_.begin(), begins_.end(), begin);
  auto block = blocks_.begin() + (place - begins_.begin());
  if (place != begins_.end() && *place == begin) {
    *block = {end, number};
  } else {
    block = blocks_.insert(block, {end, number});
    place = begins_.insert(place, begin);
  }
  // Removed blocks that began within this one would hide its bytes behind them.
  const auto behind = std::lower_bound(++place, begins_.end(), end);
  blocks_.erase(block + 1, block + 1 + (behind - place));
  begins_.erase(place, behind);
}

// The block stays as one of no length, since a run removes thousands at its end, and each erasure
// would move those behind it.
void LiveBlocks::remove(const void* base) {
  const auto* begin = static_cast<const std::byte*>(base);
  const auto place = std::lower_bound(begins_.begin(), begins_.end(), begin);
  if (place == begins_.end() || *place != begin) return;
  *(blocks_.begin() + (place - begins_.begin())) = {begin, -1};
}

int LiveBlocks::at(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  if (begins_.empty() || byte < begins_.front()) return -1;
  // The last block that begins at or before the byte. No branch depends on the addresses, so the
  // processor mispredicts none.
  const std::byte* const* begin = begins_.data();
  for (std::size_t left = begins_.size(); left > 1;) {
    const std::size_t half = left / 2;
    begin += begin[half] <= byte ? half : 0;
    left -= half;
  }
  const Block& block = blocks_[static_cast<std::size_t>(begin - begins_.data())];
  return byte < block.end ? block.number : -1;
}

}  // namespace lockstep
