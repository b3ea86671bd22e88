// Memory in windows: ranks that allocate and release alike find the same place in the same window.
#include "engine/device/window_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace lockstep {
namespace {

// Windows of a rank, at addresses where nothing is.
struct Rank {
  explicit Rank(std::uintptr_t first) : next(first) {}
  struct StepLocation {
    std::size_t window, offset;
    friend bool operator==(const StepLocation&, const StepLocation&) = default;
  };
  StepLocation of(const void* memory) const {
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    std::size_t window = 0;
    while (at < windows[window].first || at >= windows[window].first + windows[window].second)
      ++window;
    return {window, at - windows[window].first};
  }
  std::uintptr_t next;
  std::vector<std::pair<std::uintptr_t, std::size_t>> windows;
  WindowMemory memory{[this](std::size_t bytes) {
    windows.emplace_back(next, bytes);
    next += bytes + WindowMemory::kPage;
    return reinterpret_cast<void*>(windows.back().first);
  }};
};

TEST(WindowMemory, LiesAlikeOnAllRanksAndNeverOverlaps) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Rank one(std::uintptr_t{1} << 40), other(std::uintptr_t{5} << 42);
    std::vector<std::pair<void*, void*>> live;
    std::map<std::uintptr_t, std::size_t> taken;  // By rank one.
    for (int i = 0; i < 2000; ++i) {
      if (!live.empty() && random() % 5 < 2) {
        const std::size_t which = random() % live.size();
        taken.erase(reinterpret_cast<std::uintptr_t>(live[which].first));
        one.memory.release(live[which].first);
        other.memory.release(live[which].second);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      const std::size_t bytes = 1 + random() % (i % 50 == 0 ? 200'000'000 : 3'000'000);
      live.emplace_back(one.memory.allocate(bytes), other.memory.allocate(bytes));
      const auto [mine, theirs] = live.back();
      const Rank::StepLocation place = one.of(mine);
      ASSERT_EQ(place, other.of(theirs));
      EXPECT_EQ(place.offset % WindowMemory::kAlignment, 0u);
      EXPECT_LE(place.offset + bytes, one.windows[place.window].second);
      EXPECT_TRUE(one.memory.holds(static_cast<std::byte*>(mine) + bytes - 1));
      EXPECT_FALSE(one.memory.holds(theirs));
      const auto at = reinterpret_cast<std::uintptr_t>(mine);
      const auto [here, isNew] = taken.emplace(at, bytes);
      ASSERT_TRUE(isNew);
      if (here != taken.begin()) {
        EXPECT_LE(std::prev(here)->first + std::prev(here)->second, at);
      }
      if (std::next(here) != taken.end()) {
        EXPECT_LE(at + bytes, std::next(here)->first);
      }
    }
    std::vector<std::size_t> sizes, others;
    for (const auto& window : one.windows) sizes.push_back(window.second);
    for (const auto& window : other.windows) others.push_back(window.second);
    EXPECT_EQ(sizes, others);
    for (const std::size_t size : sizes) EXPECT_EQ(size % WindowMemory::kPage, 0u);
  }
}

// A window that one trainer has left serves the next.
TEST(WindowMemory, IsUsedAgainWhenAllOfAWindowIsReleased) {
  Rank rank(std::uintptr_t{1} << 40);
  std::vector<Rank::StepLocation> first;
  for (int trainer = 0; trainer < 5; ++trainer) {
    std::vector<void*> all;
    for (int i = 0; i < 40; ++i) all.push_back(rank.memory.allocate(std::size_t{3} << 20));
    std::vector<Rank::StepLocation> places;
    for (void* memory : all) places.push_back(rank.of(memory));
    if (trainer == 0) first = places;
    EXPECT_EQ(places, first);
    for (void* memory : all) rank.memory.release(memory);
  }
  EXPECT_EQ(rank.windows.size(), 40u);
}

std::size_t taken(const Rank& rank) {
  std::size_t bytes = 0;
  for (const auto& window : rank.windows) bytes += window.second;
  return bytes;
}
std::size_t mib(std::size_t count) { return count << 20; }

// Announced, all lies in one window of just that size; else each may cost less than a page.
TEST(WindowMemory, TakesNoMoreThanIsAskedFor) {
  std::vector<std::size_t> mixed(40, mib(200));
  mixed.push_back(mib(2000));
  mixed.insert(mixed.end(), 3, mib(3000));
  std::vector<std::size_t> odd;
  for (std::size_t i = 1; i <= 500; ++i) odd.push_back(i * 256 * 977);
  for (const auto& pattern :
       {std::vector<std::size_t>(33, mib(33)), mixed, odd, std::vector<std::size_t>{256}}) {
    std::size_t asked = 0;
    for (const std::size_t bytes : pattern) asked += bytes;
    Rank announced(std::uintptr_t{1} << 40), alone(std::uintptr_t{1} << 40);
    announced.memory.reserve(asked);
    for (const std::size_t bytes : pattern) {
      static_cast<void>(announced.memory.allocate(bytes));
      static_cast<void>(alone.memory.allocate(bytes));
    }
    EXPECT_EQ(announced.windows.size(), 1u);
    EXPECT_LT(taken(announced), asked + WindowMemory::kPage);
    EXPECT_LT(taken(alone), asked + pattern.size() * WindowMemory::kPage);
  }
}

// As trainers do: three pools each, which others follow.
TEST(WindowMemory, HasRoomAgainForWhatIsAnnounced) {
  Rank rank(std::uintptr_t{1} << 40);
  for (int trainer = 0; trainer < 5; ++trainer) {
    std::vector<void*> all;
    for (const std::size_t count : {7, 3, 9}) {
      rank.memory.reserve(mib(count * 11));
      EXPECT_EQ(rank.memory.new_window(mib(count * 11)), 0u);
      for (std::size_t i = 0; i < count; ++i) all.push_back(rank.memory.allocate(mib(11)));
    }
    for (void* memory : all) rank.memory.release(memory);
    EXPECT_EQ(taken(rank), mib(78 + 34 + 100));
  }
  EXPECT_EQ(rank.memory.new_window(mib(101)), mib(102));
}

TEST(WindowMemoryDeathTest, KnowsWhatIsItsOwn) {
  Rank rank(std::uintptr_t{1} << 40);
  int elsewhere = 0;
  EXPECT_FALSE(rank.memory.holds(&elsewhere));
  EXPECT_DEATH(rank.memory.release(&elsewhere), "lies in one");
  EXPECT_DEATH(static_cast<void>(rank.memory.allocate(0)), "no memory");
}

// Nothing is kept of a window that could not be made.
TEST(WindowMemory, LetsAFailureThrough) {
  bool fails = true;
  std::vector<std::byte> window(WindowMemory::kPage);
  WindowMemory memory([&](std::size_t) -> void* {
    if (fails) throw std::runtime_error("no more");
    return window.data();
  });
  EXPECT_THROW(static_cast<void>(memory.allocate(100)), std::runtime_error);
  EXPECT_FALSE(memory.holds(nullptr));
  fails = false;
  EXPECT_EQ(memory.allocate(100), window.data());
}

}  // namespace
}  // namespace lockstep
