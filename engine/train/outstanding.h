// Counts the microbatches between their forward and their backward pass, and the slots that they
// hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/core/at.h"
#include "kernels/core/require.h"

namespace lockstep {

struct Outstanding {
  explicit Outstanding(int slots) : of_slot(slots) {}
  void begins(int slot) {
    ++at(of_slot, slot);
    const std::int64_t all = std::accumulate(of_slot.begin(), of_slot.end(), 0);
    require(all <= std::ssize(of_slot), "a slot is free before the next forward pass takes it");
    most = std::max(most, all);
    const std::int64_t live = std::ssize(of_slot) - std::count(of_slot.begin(), of_slot.end(), 0);
    most_slots = std::max(most_slots, live);
  }
  void ends(int slot) { --at(of_slot, slot); }

  std::vector<int> of_slot;
  std::int64_t most = 0, most_slots = 0;
};

}  // namespace lockstep
