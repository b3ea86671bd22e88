// The history of the bytes of one allocation: the last writers, and the readers since.
#pragma once

#include <vector>

#include "harness/access/clock.h"
#include "harness/access/touch.h"

namespace lockstep {

class Shadow {
 public:
  // True if all accesses that `unordered` looks at are complete for `clock`, wherever they lie.
  bool all_complete(const Touch& now, const Clock& clock) const {
    return all_complete(writes_, clock) && (!writes(now.mode) || all_complete(reads_, clock));
  }
  // The accesses that conflict with `now` and are not complete for `clock`.
  std::vector<Touch> unordered(const Touch& now, const Clock& clock) const;
  // Stores an access. Earlier accesses that it covers are forgotten, because every access that is
  // ordered after this one is ordered after them too.
  void add(const Touch& touch, const Clock& clock) {
    if (!writes(touch.mode)) return replace(reads_, touch, clock);
    if (!reads_.empty()) forget(reads_, touch, clock);
    replace(writes_, touch, clock);
  }
  void clear();

 private:
  static bool is_complete(const Touch& touch, const Clock& clock) {
    return clock.at(touch.thread) >= touch.time;
  }
  static bool all_complete(const std::vector<Touch>& list, const Clock& clock) {
    for (const Touch& one : list) {
      if (!is_complete(one, clock)) return false;
    }
    return true;
  }
  static bool covers(const Touch& by, const Touch& old, const Clock& clock) {
    return is_complete(old, clock) && (old.box == by.box || contains(by.box, old.box));
  }
  static void forget(std::vector<Touch>& list, const Touch& by, const Clock& clock) {
    std::erase_if(list, [&](const Touch& old) { return covers(by, old, clock); });
  }
  // Adds an access in place of those that it covers, mostly of the only one.
  static void replace(std::vector<Touch>& list, const Touch& by, const Clock& clock) {
    if (list.size() == 1 && covers(by, list.front(), clock)) {
      list.front() = by;
      return;
    }
    forget(list, by, clock);
    list.push_back(by);
  }
  static void collect(const std::vector<Touch>& list, const Touch& now, const Clock& clock,
                      std::vector<Touch>& found);

  std::vector<Touch> writes_, reads_;
};

}  // namespace lockstep
