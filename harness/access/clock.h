// Vector clocks: the accesses that a stream, a lane of a graph or the host knows to be complete.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

// One entry per thread of execution. An access at time t of thread k is complete for every thread
// whose clock has at(k) >= t.
class Clock {
 public:
  std::uint64_t at(int thread) const {
    const std::size_t k = thread;
    return k < times_.size() ? times_[k] : 0;
  }
  // The first thread of which `other` knows more; -1 if there is none.
  int first_behind(const Clock& other) const {
    for (std::size_t k = 0; k < other.times_.size(); ++k) {
      if (other.times_[k] > at(static_cast<int>(k))) return static_cast<int>(k);
    }
    return -1;
  }
  void join(const Clock& other) {
    ++changes_;
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size());
    for (std::size_t k = 0; k < other.times_.size(); ++k)
      times_[k] = std::max(times_[k], other.times_[k]);
  }
  void reach(int thread, std::uint64_t time) {
    ++changes_;
    const std::size_t k = thread;
    if (times_.size() <= k) times_.resize(k + 1);
    times_[k] = std::max(times_[k], time);
  }
  // Knows no more of the thread than up to `time`.
  void forget_behind(int thread, std::uint64_t time) {
    ++changes_;
    const std::size_t k = thread;
    if (k < times_.size()) times_[k] = std::min(times_[k], time);
  }
  std::uint64_t tick(int thread) {
    ++changes_;
    const std::size_t k = thread;
    if (times_.size() <= k) times_.resize(k + 1);
    return ++times_[k];
  }

  // Counts the changes: as long as it stays equal, so does the clock.
  std::uint64_t changes() const { return changes_; }

 private:
  std::vector<std::uint64_t> times_;
  std::uint64_t changes_ = 0;
};

}  // namespace lockstep
