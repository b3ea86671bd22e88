// Which graphs a run captures and evicts: a model of its own, of the scenario and its documents
// alone.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep {

// The size that a recorded call of a graph counts for under cuda_graph.graph_memory_limit, in
// bytes: docs/decisions.md.
constexpr std::int64_t kBytesOfACall = 1024;

struct GraphTally {
  std::int64_t captured = 0, evicted = 0;  // Graphs of a rank.
  // How often the graphs of all regions were captured for a bucket; with several chunks under a
  // limit, those of the first chunk that has some.
  std::int64_t buckets = 0;
  // How many of a rank exist when each step, with its evaluation, has ended. What was evicted goes
  // when the next step begins, since its launches may be under way until then.
  std::vector<std::int64_t> alive = {};
};
// `calls`: how many each graph of a rank recorded, in order of capture; beyond its end none. Only
// the first graph of each kind is asked, so that a later one of another size is found. Without a
// limit nothing depends on it. Each stage has a limit of its own.
GraphTally tally_graphs(const Scenario& scenario, const DataSource& data,
                        std::span<const std::int64_t> calls = {}, std::int64_t stage = 0);

// "" or a sentence: after a step of training other than the expected number of graphs exist, over
// all `ranks` of each stage. `seen`: how many there were, by step. `calls` as above, by rank of the
// run, of those that capture; under a limit and without them nothing is known.
std::string unexpected_graphs(const Scenario& scenario, const DataSource& data, std::int64_t ranks,
                              const std::vector<std::int64_t>& seen,
                              const std::map<int, std::vector<std::int64_t>>& calls);

}  // namespace lockstep
