// The steps of the pass before a backward pass, in which its copies back may begin: each is run
// once, there or, if that pass was shorter or there was none, when the backward pass begins.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "engine/offload/plan.h"

namespace lockstep {

class EarlyCopies {
 public:
  // The steps of the plan that are due in the pass before that of `slot`, `behind` steps before its
  // last one.
  std::vector<int> due(const OffloadPlan& plan, int slot, int behind) {
    if (slot_ != slot) next_ = plan.first_h2d_step();
    slot_ = slot;
    std::vector<int> steps;
    for (; next_ <= plan.segments - behind; ++next_) steps.push_back(next_);
    return steps;
  }
  // The steps that are left when the backward pass begins.
  std::vector<int> missed(const OffloadPlan& plan, int slot) {
    std::vector<int> steps = due(plan, slot, 0);
    slot_.reset();
    return steps;
  }

 private:
  std::optional<int> slot_;
  int next_ = 0;
};

}  // namespace lockstep
