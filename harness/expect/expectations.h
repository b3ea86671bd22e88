// The counters that a run must show, computed from the scenario and its documents alone: the rules
// against vacuity.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "harness/case/verdict.h"
#include "harness/costs/costs.h"
#include "scenarios/documents/documents.h"

namespace lockstep {

struct Expectation {
  Counter counter = Counter::ops;
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::string why;
};

// How many microbatches (under full_iteration: steps) there are after warm-up on each rank, and how
// many fall back to eager mode, by reason. `cuda_graph.impl` is not none.
struct Fallbacks {
  std::int64_t decisions = 0, documents = 0, length = 0;
};
Fallbacks expected_fallbacks(const Scenario& scenario);

// Blocks of which a part is captured (1 for full_iteration, 0 without graphs).
std::int64_t graph_regions(const Scenario& scenario);
// The slots of all regions, or of those of a stage: each has those of its chunk.
std::int64_t slots_of_regions(const Scenario& scenario, std::optional<std::int64_t> stage = {});
// The most passes that have run forward and not yet backward, a chunk of a microbatch being one:
// what warms up, and one more.
std::int64_t most_outstanding(const Scenario& scenario);
// The captured symbols of one block, as indices into the pattern.
std::vector<int> captured_symbols(const Scenario& scenario, const Scenario::Block& block);

// Stages that capture something; 1 where there is one stage.
std::int64_t stages_with_regions(const Scenario& scenario);
// Passes of captures, both ways, on a rank of a stage, if the graphs of all its regions are
// captured for so many buckets.
std::int64_t passes_of_captures(const Scenario& scenario, std::int64_t buckets, std::int64_t stage);

// Whether that takes no more than a few seconds: the documents of every microbatch are looked at.
bool can_be_counted_at_once(const Scenario& scenario);
// The expectations of the scenario's first precision.
std::vector<Expectation> expectations(const Scenario& scenario, const DataSource& data);

// The expectations of each precision, in the scenario's order: they differ, bf16 has collectives of
// its own.
struct PrecisionExpectations {
  Numerics numerics;
  std::vector<Expectation> expected;
};
std::vector<PrecisionExpectations> expectations_by_precision(const Scenario& scenario);

// "3", "at least 3" or "3 to 5".
std::string range_text(std::int64_t min, std::int64_t max);

// "" or the first expectation that does not hold, as a sentence.
std::string unmet(const std::vector<Expectation>& expected, const Counters& counters);
// The same for `expect.counters` of the scenario.
std::string unmet(const std::map<Counter, Scenario::CounterRule, ByName>& rules,
                  const Counters& counters);

}  // namespace lockstep
