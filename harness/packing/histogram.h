// The number of packs for each number of documents, from which the capacities of graphs are chosen.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

// Slots of a pack (empty documents count) -> packs.
using PackHistogram = std::map<std::int64_t, std::int64_t>;

// Lines of "documents packs", separated by blanks, a comma, a semicolon or a tab; '#' begins a
// comment. RequestError names file and line.
PackHistogram read_histogram(const std::string& path);
// Counts the documents of every microbatch that the scenario trains.
PackHistogram count_packs(const Scenario& scenario);

std::int64_t packs(const PackHistogram& histogram);
// The fewest documents that at least `share` (0..1) of the packs do not exceed. The histogram is
// not empty.
std::int64_t percentile(const PackHistogram& histogram, double share);

}  // namespace lockstep
