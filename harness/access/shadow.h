// The history of the bytes of one allocation: the last writers, and the readers since.
#pragma once

#include <vector>

#include "harness/access/clock.h"
#include "harness/access/touch.h"

namespace lockstep {

class Shadow {
 public:
  // The accesses that conflict with `now` and are not complete for `clock`.
  std::vector<Touch> unordered(const Touch& now, const Clock& clock) const;
  // Stores an access. Earlier accesses that it covers are forgotten, because every access that is
  // ordered after this one is ordered after them too.
  void add(const Touch& touch, const Clock& clock);
  void clear();

 private:
  std::vector<Touch> writes_, reads_;
};

}  // namespace lockstep
