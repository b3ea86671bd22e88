// Memory that is carved out of blocks: no two allocations touch, all are aligned, and blocks serve
// the next device.
#include "engine/device/block_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>

namespace lockstep {
namespace {

int made;
void* make(std::size_t bytes) {
  ++made;
  return std::aligned_alloc(BlockMemory::kAlignment, bytes);
}

struct Spare {
  Spare() { made = 0; }
  ~Spare() {
    for (void* block : blocks) std::free(block);
  }
  std::vector<void*> blocks;
};

std::uintptr_t at(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

TEST(BlockMemory, HandsOutAlignedMemoryThatNeverOverlaps) {
  Spare spare;
  std::mt19937_64 random(1);
  BlockMemory memory(spare.blocks, make);
  std::map<std::uintptr_t, std::size_t> handed;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t bytes = 1 + random() % (i % 100 == 0 ? BlockMemory::kLargest : 5000);
    void* const got = memory.allocate(bytes);
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(at(got) % BlockMemory::kAlignment, 0u);
    EXPECT_TRUE(memory.holds(got));
    EXPECT_TRUE(memory.holds(static_cast<std::byte*>(got) + bytes - 1));
    static_cast<std::byte*>(got)[bytes - 1] =
        std::byte{1};  // It is there: an address sanitizer looks on.
    handed[at(got)] = bytes;
  }
  std::uintptr_t end = 0;
  for (const auto& [first, bytes] : handed) {
    EXPECT_GE(first, end);
    end = first + bytes;
  }
  EXPECT_EQ(handed.size(), 3000u);
  memory.give_back();
  EXPECT_EQ(spare.blocks.size(), static_cast<std::size_t>(made));
}

TEST(BlockMemory, LeavesNothingAndTooMuchToTheDriver) {
  Spare spare;
  BlockMemory memory(spare.blocks, make);
  EXPECT_EQ(memory.allocate(0), nullptr);
  EXPECT_EQ(memory.allocate(BlockMemory::kLargest + 1), nullptr);
  EXPECT_EQ(made, 0);
  int other = 0;
  EXPECT_FALSE(memory.holds(&other));
}

TEST(BlockMemory, TheNextDeviceTakesTheSameBlocks) {
  Spare spare;
  const auto fill = [&spare] {
    BlockMemory memory(spare.blocks, make);
    for (int i = 0; i < 40; ++i) memory.allocate(BlockMemory::kLargest);
    memory.give_back();
  };
  fill();
  const int first = made;
  EXPECT_EQ(first, 3);  // 16 of the largest in each.
  for (int i = 0; i < 10; ++i) fill();
  EXPECT_EQ(made, first);
}

// Two devices that are open at once share none, and what one keeps for good is never handed out.
TEST(BlockMemory, BlocksOfAnOpenDeviceAreItsOwn) {
  Spare spare;
  BlockMemory one(spare.blocks, make), other(spare.blocks, make);
  void* const a = one.allocate(8);
  void* const b = other.allocate(8);
  EXPECT_FALSE(one.holds(b));
  EXPECT_FALSE(other.holds(a));
  one.give_back();
  EXPECT_FALSE(one.holds(a));
  other.give_back();
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace lockstep
