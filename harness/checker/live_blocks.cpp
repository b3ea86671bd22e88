#include "harness/checker/live_blocks.h"

#include <algorithm>

namespace lockstep {

void LiveBlocks::add(const void* base, std::size_t bytes, int number) {
  const auto* begin = static_cast<const std::byte*>(base);
  const auto place = std::lower_bound(begins_.begin(), begins_.end(), begin);
  const auto block = blocks_.begin() + (place - begins_.begin());
  if (place != begins_.end() && *place == begin) {
    *block = {begin + bytes, number};
    return;
  }
  blocks_.insert(block, {begin + bytes, number});
  begins_.insert(place, begin);
}

void LiveBlocks::remove(const void* base) {
  const auto place =
      std::lower_bound(begins_.begin(), begins_.end(), static_cast<const std::byte*>(base));
  if (place == begins_.end() || *place != base) return;
  blocks_.erase(blocks_.begin() + (place - begins_.begin()));
  begins_.erase(place);
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
