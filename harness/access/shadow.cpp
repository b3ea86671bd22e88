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

void forget(std::vector<Touch>& list, const Touch& by, const Clock& clock) {
  std::erase_if(list, [&](const Touch& old) {
    return is_over(old, clock) && (old.box == by.box || contains(by.box, old.box));
  });
}

}  // namespace

std::vector<Touch> Shadow::unordered(const Touch& now, const Clock& clock) const {
  std::vector<Touch> found;
  collect(writes_, now, clock, found);
  if (writes(now.mode)) collect(reads_, now, clock, found);
  return found;
}

void Shadow::add(const Touch& touch, const Clock& clock) {
  forget(reads_, touch, clock);
  if (!writes(touch.mode)) return reads_.push_back(touch);
  forget(writes_, touch, clock);
  writes_.push_back(touch);
}

void Shadow::clear() {
  writes_ = {};
  reads_ = {};
}

}  // namespace lockstep
