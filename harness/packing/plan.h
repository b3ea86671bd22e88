// Which capacities graphs should be captured for: the cheapest by what a microbatch costs, replayed
// and eager.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "harness/packing/histogram.h"

namespace lockstep {

// Seconds of a microbatch.
struct PackCosts {
  // Per capacity of the graph, as measured; at least one.
  std::map<std::int64_t, double> replay = {};
  double eager = 0;

  // Interpolated between two measured capacities; outside them, the value of the nearest.
  double replay_at(std::int64_t capacity) const;
};

struct PackingPlan {
  std::vector<std::int64_t> buckets = {};  // Increasing; {} = everything is eager.
  double replayed = 0;                     // Share of the packs; the rest is eager.
  double seconds = 0;                      // For a microbatch, expected.
};

// The cheapest plan with exactly 1, 2, ... `most` buckets, as far as there are different numbers of
// documents, after the one with none. A capacity is a number of documents that was seen: one
// between two of them fits no pack more. `together` packs, drawn independently, share a graph or
// fall back together: those of all ranks, and of a whole step under full_iteration.
std::vector<PackingPlan> cheapest_plans(const PackHistogram& histogram, const PackCosts& costs,
                                        std::size_t most, std::int64_t together = 1);

// What one capacity would do for these packs.
struct CapacityUse {
  double replayed = 0;  // As in PackingPlan.
  double seconds = 0;   // For a microbatch, expected.
  // Seconds that a replay takes on average beyond one of a graph whose capacity is just what its
  // packs have: the price of empty places.
  double padding = 0;
};
CapacityUse use_of(const PackHistogram& histogram, const PackCosts& costs, std::int64_t capacity,
                   std::int64_t together = 1);
// The share alone, which needs no costs.
double share_replayed(const PackHistogram& histogram, std::int64_t capacity,
                      std::int64_t together = 1);

// The one of these with the fewest buckets that is at most `slack` (0.005 = half a percent) dearer
// than the cheapest.
const PackingPlan& proposed(const std::vector<PackingPlan>& plans, double slack);

}  // namespace lockstep
