// The history of an allocation finds what a list of all accesses finds that nothing has covered.
#include "harness/access/shadow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace lockstep::test {
namespace {

// Keeps each access in the order of the calls, and looks at all of them.
class PlainHistory {
 public:
  std::multiset<std::uint64_t> unordered(const Touch& now, const Clock& clock) const {
    std::multiset<std::uint64_t> times;
    for (const Touch& old : list_) {
      const bool conflicts = writes(old.mode) || writes(now.mode);
      if (conflicts && clock.at(old.thread) < old.time && overlap(old.box, now.box))
        times.insert(old.time);
    }
    return times;
  }
  void add(const Touch& by, const Clock& clock) {
    std::erase_if(list_, [&](const Touch& old) {
      const bool replaces = writes(by.mode) || !writes(old.mode);
      return replaces && clock.at(old.thread) >= old.time && contains(by.box, old.box);
    });
    list_.push_back(by);
  }
  std::size_t size() const { return list_.size(); }

 private:
  std::vector<Touch> list_;
};

// Accesses to a pool of tensors: mostly one of them, at times some columns, several or all. Threads
// learn of each other now and then.
std::size_t compare(std::uint64_t seed, int tensors) {
  constexpr int kThreads = 3, kAccesses = 1500;
  constexpr std::int64_t kTensor = 64;
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Shadow shadow;
  PlainHistory plain;
  std::vector<Clock> clocks(kThreads);
  std::uint64_t time = 0;
  std::size_t most = 0;
  for (int i = 0; i < kAccesses; ++i) {
    const int thread = static_cast<int>(below(kThreads));
    if (below(4) == 0) clocks[thread].join(clocks[below(kThreads)]);
    const std::int64_t first = below(tensors), base = first * kTensor;
    Touch now;
    now.time = ++time;
    now.thread = thread;
    now.mode = below(3) == 0 ? Access::out : Access::in;
    switch (below(8)) {
      case 0:
        now.box = box(base + below(8), 7, 1 + below(6), 8);
        break;
      case 1:
        now.box = box(base, 1, kTensor * (1 + below(tensors - first)), 0);
        break;
      case 2:
        now.box = below(20) == 0 ? box(0, 1, kTensor * tensors, 0) : box(base, 1, 1 + below(9), 0);
        break;
      default:
        now.box = box(base, 1, kTensor, 0);
    }
    clocks[thread].reach(thread, now.time);
    Clock known = clocks[thread];
    std::multiset<std::uint64_t> found;
    for (const Touch& old : shadow.unordered(now, known)) found.insert(old.time);
    EXPECT_EQ(found, plain.unordered(now, known)) << "seed " << seed << ", access " << i;
    if (shadow.all_complete(now, known)) {
      EXPECT_TRUE(found.empty()) << "seed " << seed << ", access " << i;
    }
    shadow.add(now, known);
    plain.add(now, known);
    most = std::max(most, plain.size());
    if (testing::Test::HasFailure()) break;
  }
  return most;
}

TEST(Shadow, FindsWhatAPlainListFinds) {
  std::size_t most = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const int tensors : {1, 3, 12, 100}) most = std::max(most, compare(seed, tensors));
  }
  EXPECT_GT(most, 100u) << "no history was long";
}

}  // namespace
}  // namespace lockstep::test
