// Places blocks that are alive at different times in one piece of memory.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// BitSet at which a block is alive: a set of bits.
class BitSet {
 public:
  explicit BitSet(std::int64_t count) : words_((count + 63) / 64) {}
  void add(std::int64_t one) { words_[one / 64] |= std::uint64_t{1} << (one % 64); }
  bool has(std::int64_t one) const { return (words_[one / 64] >> (one % 64) & 1) != 0; }
  bool meet(const BitSet& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  std::int64_t count() const;

 private:
  std::vector<std::uint64_t> words_;
};

struct MemoryBlock {
  std::int64_t bytes = 0;
  BitSet alive;  // The moments at which it is.
};

struct Placement {
  std::vector<std::int64_t> offsets;  // Each block has one.
  std::int64_t bytes = 0;             // Size of the memory.
};

// No placement takes less than the blocks of the fullest moment. Returns that moment and their
// bytes.
struct Peak {
  std::int64_t moment = 0, bytes = 0;
};
Peak peak_of(const std::vector<MemoryBlock>& blocks, std::int64_t moments);

// A larger bound than the peak's, if there is one: the bytes of blocks of which every two are alive
// together, be it never all at once. Found by adding blocks in falling size to those of the peak
// and to each of the largest blocks.
std::int64_t bytes_of_pairs(const std::vector<MemoryBlock>& blocks, const Peak& peak);

// First fit, blocks in falling size and equal ones in their order: each lies at the lowest place
// that no block holds which is alive at the same moment.
Placement first_fit(const std::vector<MemoryBlock>& blocks);

// The smallest of several placements: first fit in a few orders, and while none is within a
// twentieth of `least`, a bounded number of attempts in which the highest block is placed sooner.
// It depends on its arguments alone. `least`: bytes that no placement goes below.
Placement place(const std::vector<MemoryBlock>& blocks, std::int64_t least);

}  // namespace lockstep
