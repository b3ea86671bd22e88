// The number of packs for each number of documents, from which the capacities of graphs are chosen.
#pragma once

#include <cstdint>
#include <string>

#include "scenarios/documents/histogram.h"

namespace lockstep {

// The file of scenarios/documents/histogram.h; a RequestError names file and line.
PackHistogram read_histogram(const std::string& path);
// Counts the documents of every microbatch that the scenario trains.
PackHistogram count_packs(const Scenario& scenario);

std::int64_t packs(const PackHistogram& histogram);
// The fewest documents that at least `share` (0..1) of the packs do not exceed. The histogram is
// not empty.
std::int64_t percentile(const PackHistogram& histogram, double share);

}  // namespace lockstep
