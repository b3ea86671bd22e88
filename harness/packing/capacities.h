// The capacities that somebody asks about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/packing/histogram.h"

namespace lockstep {

struct NamedCapacity {
  std::string name;  // As asked for: "64", "p99", "max".
  std::int64_t capacity = 0;
};

// "64,106,p99,max": numbers of documents (1..65536), percentiles of the histogram ("p99.9" too) and
// its largest number. A RequestError says which word is none of these.
std::vector<NamedCapacity> named_capacities(const std::string& words,
                                            const PackHistogram& histogram);

}  // namespace lockstep
