// Blocks that are alive together never share a byte, and the memory is hardly larger than what is
// alive at once.
#include "engine/memory/placement.h"

#include <gtest/gtest.h>

#include "harness/generate/choices.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMoments = 100;

std::vector<MemoryBlock> random_blocks(Choices& c) {
  std::vector<MemoryBlock> blocks;
  for (std::int64_t i = c.between(1, 60); i > 0; --i) {
    MemoryBlock block{256 * c.between(1, 40), BitSet(kMoments)};
    for (std::int64_t lives = c.between(1, 3); lives > 0; --lives) {
      const std::int64_t begin = c.between(0, kMoments - 1);
      for (std::int64_t m = begin; m <= c.between(begin, kMoments - 1); ++m) block.alive.add(m);
    }
    blocks.push_back(block);
  }
  return blocks;
}

// Moment by moment, block by block, without any set operation.
std::string overlap(const std::vector<MemoryBlock>& blocks, const Placement& placement) {
  for (std::int64_t m = 0; m < kMoments; ++m) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (!blocks[i].alive.has(m) || !blocks[j].alive.has(m)) continue;
        const std::int64_t a = placement.offsets[i], b = placement.offsets[j];
        if (a < b + blocks[j].bytes && b < a + blocks[i].bytes)
          return "blocks " + std::to_string(j) + " and " + std::to_string(i) + " at moment " +
                 std::to_string(m);
      }
    }
  }
  return "";
}

TEST(Placement, NeverLetsBlocksShareBytesThatAreAliveTogether) {
  for (int seed = 0; seed < 60; ++seed) {
    Choices choices(seed);
    const std::vector<MemoryBlock> blocks = random_blocks(choices);
    const Peak peak = peak_of(blocks, kMoments);
    for (const Placement& placement : {first_fit(blocks), place(blocks, peak.bytes)}) {
      EXPECT_EQ(overlap(blocks, placement), "") << "seed " << seed;
      EXPECT_GE(placement.bytes, peak.bytes) << "seed " << seed;
      std::int64_t end = 0;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        EXPECT_GE(placement.offsets[i], 0);
        EXPECT_EQ(placement.offsets[i] % 256, 0) << "every block is a multiple of 256 bytes";
        end = std::max(end, placement.offsets[i] + blocks[i].bytes);
      }
      EXPECT_EQ(end, placement.bytes);
    }
    EXPECT_LE(place(blocks, peak.bytes).bytes, first_fit(blocks).bytes) << "seed " << seed;
    EXPECT_EQ(place(blocks, peak.bytes).offsets, place(blocks, peak.bytes).offsets);
  }
}

TEST(Placement, OfBlocksThatAreAlwaysAliveIsTheirSum) {
  std::vector<MemoryBlock> blocks;
  for (const std::int64_t bytes : {256, 512, 256, 1024}) {
    blocks.push_back({bytes, BitSet(kMoments)});
    for (std::int64_t m = 0; m < kMoments; ++m) blocks.back().alive.add(m);
  }
  const Peak peak = peak_of(blocks, kMoments);
  EXPECT_EQ(peak.bytes, 2048);
  EXPECT_EQ(place(blocks, peak.bytes).bytes, 2048);
}

// Every two of three meet, and never all three: no placement takes less than all.
TEST(Placement, CannotGoBelowBlocksThatMeetInPairs) {
  std::vector<MemoryBlock> blocks(3, {512, BitSet(kMoments)});
  for (const auto& [block, moment] :
       {std::pair<int, int>{0, 1}, {1, 1}, {1, 2}, {2, 2}, {2, 3}, {0, 3}})
    blocks[block].alive.add(moment);
  const Peak peak = peak_of(blocks, kMoments);
  EXPECT_EQ(peak.bytes, 1024);
  EXPECT_EQ(bytes_of_pairs(blocks, peak), 1536);
  EXPECT_EQ(place(blocks, 1536).bytes, 1536);
  for (int seed = 0; seed < 60; ++seed) {
    Choices choices(seed);
    const std::vector<MemoryBlock> some = random_blocks(choices);
    const Peak largest = peak_of(some, kMoments);
    const std::int64_t least = bytes_of_pairs(some, largest);
    EXPECT_GE(least, largest.bytes) << "seed " << seed;
    EXPECT_LE(least, place(some, largest.bytes).bytes) << "seed " << seed;
  }
}

TEST(Placement, OfBlocksThatFollowEachOtherIsTheLargest) {
  std::vector<MemoryBlock> blocks;
  for (const std::int64_t bytes : {256, 512, 1024}) {
    blocks.push_back({bytes, BitSet(kMoments)});
    blocks.back().alive.add(std::ssize(blocks));
  }
  const Placement placement = place(blocks, peak_of(blocks, kMoments).bytes);
  EXPECT_EQ(placement.bytes, 1024);
  EXPECT_EQ(placement.offsets, (std::vector<std::int64_t>{0, 0, 0}));
}

}  // namespace
}  // namespace lockstep
