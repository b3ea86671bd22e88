// How partial graphs cut the model: the captured parts of one block are one region, the rest runs eagerly.
#pragma once

#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

struct Segment {
  std::vector<int> layers;  // Symbol indices, in order.
  int region = -1;          // Counted from 0; -1: eager.
};

// The whole pattern in order. Without partial graphs every segment is eager.
std::vector<Segment> segments(const Scenario& scenario);

}  // namespace lockstep
