// Which buckets of cuda_graph.max_packed_seqs the scenario's documents ever replay.
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// The buckets that no microbatch after warm-up takes, under full_iteration no step. Empty without
// graphs, where documents are bytes of files, and where there are too many microbatches to look at.
std::vector<std::int64_t> unused_buckets(const Scenario& scenario);

}  // namespace lockstep
