// The history of the bytes of one allocation: the last writers, and the readers since.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "harness/access/clock.h"
#include "harness/access/touch.h"

namespace lockstep {

// Accesses by their first byte. A pool of weights has hundreds, of which an access meets few.
class Touches {
 public:
  void prefetch() const {
    __builtin_prefetch(extents_.data());
    __builtin_prefetch(touches_.data());
  }
  // True if all that may share a byte with `now` are complete for `clock`.
  bool all_complete(const Touch& now, const Clock& clock) const {
    return find(now, [&](const Touch& old) { return !is_complete(old, clock); }) == touches_.size();
  }
  // Appends those that share a byte with `now` and are not complete.
  void collect(const Touch& now, const Clock& clock, std::vector<Touch>& found) const;
  // Forgets those that are complete and lie within `by`.
  void forget(const Touch& by, const Clock& clock) {
    forget(find(by, [&](const Touch& old) { return covers(by, old, clock); }), by, clock);
  }
  // The same, and adds `by`.
  void replace(const Touch& by, const Clock& clock) {
    if (touches_.size() == 1 && covers(by, touches_.front(), clock)) {
      touches_.front() = by;
      return;
    }
    replace_among_several(by, clock);
  }

 private:
  // Bytes from the first to the last of an access; `reach`: the largest end up to here.
  struct Extent {
    std::int64_t begin, end, reach;
  };
  static Extent extent_of(const Touch& touch) {
    return {touch.box.base, touch.box.end(), touch.box.end()};
  }
  static bool is_complete(const Touch& touch, const Clock& clock) {
    return clock.at(touch.thread) >= touch.time;
  }
  static bool covers(const Touch& by, const Touch& old, const Clock& clock) {
    return is_complete(old, clock) && (old.box == by.box || contains(by.box, old.box));
  }
  // Returns the number of the first that may share a byte with `now` and is `wanted`, from number
  // `from` on, or how many there are.
  template <class Wanted>
  std::size_t find(const Touch& now, const Wanted& wanted, std::size_t from = 0) const {
    const std::int64_t begin = now.box.base, end = now.box.end();
    const std::size_t count = touches_.size();
    if (count == 1) {  // It has no extent.
      const Touch& only = touches_.front();
      const bool meet = from == 0 && begin < only.box.end() && only.box.base < end;
      return meet && wanted(only) ? 0 : 1;
    }
    for (std::size_t i = first_to_reach(begin, from); i < count && extents_[i].begin < end; ++i) {
      if (begin < extents_[i].end && wanted(touches_[i])) return i;
    }
    return count;
  }
  std::size_t first_to_reach(std::int64_t byte, std::size_t from) const;
  void replace_among_several(const Touch& by, const Clock& clock);
  void forget(std::size_t first, const Touch& by, const Clock& clock);
  void set_reaches(std::size_t first);  // From that number on.

  std::vector<Touch> touches_;
  std::vector<Extent> extents_;  // One for each access; none if there is only one access.
};

class Shadow {
 public:
  // Fetches what the other calls read first. A GPU's driver uses the caches between two calls.
  void prefetch() const {
    writes_.prefetch();
    reads_.prefetch();
  }
  // True if all accesses that may conflict with `now` are complete for `clock`.
  bool all_complete(const Touch& now, const Clock& clock) const {
    return writes_.all_complete(now, clock) &&
           (!writes(now.mode) || reads_.all_complete(now, clock));
  }
  // The accesses that conflict with `now` and are not complete for `clock`.
  std::vector<Touch> unordered(const Touch& now, const Clock& clock) const;
  // Stores an access. Earlier accesses that it covers are forgotten, because every access that is
  // ordered after this one is ordered after them too.
  void add(const Touch& touch, const Clock& clock) {
    if (!writes(touch.mode)) return reads_.replace(touch, clock);
    reads_.forget(touch, clock);
    writes_.replace(touch, clock);
  }
  void clear();

 private:
  Touches writes_, reads_;
};

}  // namespace lockstep
