#include "harness/access/shadow.h"

namespace lockstep {

void Shadow::collect(const std::vector<Touch>& list, const Touch& now, const Clock& clock,
                     std::vector<Touch>& found) {
  for (const Touch& earlier : list) {
    if (!is_complete(earlier, clock) && overlap(earlier.box, now.box)) found.push_back(earlier);
  }
}

std::vector<Touch> Shadow::unordered(const Touch& now, const Clock& clock) const {
  std::vector<Touch> found;
  collect(writes_, now, clock, found);
  if (writes(now.mode)) collect(reads_, now, clock, found);
  return found;
}

void Shadow::clear() {
  writes_ = {};
  reads_ = {};
}

}  // namespace lockstep
