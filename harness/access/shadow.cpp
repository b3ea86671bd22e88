#include "harness/access/shadow.h"

namespace lockstep {
namespace {

bool is_over(const Touch& touch, const Clock& clock) {
  return clock.at(touch.thread) >= touch.time;
}

void collect(const std::vector<Touch>& list, const Touch& now, const Clock& clock,
             std::vector<Touch>& found) {
  for (const Touch& earlier : list) {
    if (!is_over(earlier, clock) && overlap(earlier.box, now.box)) found.push_back(earlier);
  }
}

bool covers(const Touch& by, const Touch& old, const Clock& clock) {
  return is_over(old, clock) && (old.box == by.box || contains(by.box, old.box));
}

void forget(std::vector<Touch>& list, const Touch& by, const Clock& clock) {
  std::erase_if(list, [&](const Touch& old) { return covers(by, old, clock); });
}

// Adds an access in place of those that it covers, mostly of the only one.
void replace(std::vector<Touch>& list, const Touch& by, const Clock& clock) {
  if (list.size() == 1 && covers(by, list.front(), clock)) {
    list.front() = by;
    return;
  }
  forget(list, by, clock);
  list.push_back(by);
}

}  // namespace

std::vector<Touch> Shadow::unordered(const Touch& now, const Clock& clock) const {
  std::vector<Touch> found;
  collect(writes_, now, clock, found);
  if (writes(now.mode)) collect(reads_, now, clock, found);
  return found;
}

void Shadow::add(const Touch& touch, const Clock& clock) {
  if (!writes(touch.mode)) return replace(reads_, touch, clock);
  if (!reads_.empty()) forget(reads_, touch, clock);
  replace(writes_, touch, clock);
}

void Shadow::clear() {
  writes_ = {};
  reads_ = {};
}

}  // namespace lockstep
