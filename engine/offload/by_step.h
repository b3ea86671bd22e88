// Lists of what happens at each step of OffloadPlan's time line, in the order in which it happens
// there.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/core/at.h"

namespace lockstep {

template <class Item>
class ByStep {
 public:
  // Has a list for the embedding, which is step -1, and for each of the steps 0 to `last`.
  explicit ByStep(int last) : lists_(static_cast<std::size_t>(last) + 2) {}
  std::vector<Item>& operator[](int step) { return at(lists_, step + 1); }
  auto begin() { return lists_.begin(); }
  auto end() { return lists_.end(); }

 private:
  std::vector<std::vector<Item>> lists_;
};

}  // namespace lockstep
