// The cost of a microbatch of a model, replayed by a graph of some capacity and eager.
#pragma once

#include <string>

#include "harness/packing/plan.h"

namespace lockstep {

// The model of the scenario with packs of `documents` documents, graphs of ever larger capacity up
// to `most`, and no graph: medians of a step over its microbatches, the optimizer's share included,
// which is the same in all. Each is measured for `budget` seconds. RequestError where the model's
// graphs cannot be captured.
PackCosts measure_costs(const Scenario& model, std::int64_t documents, std::int64_t most,
                        const std::string& device, double budget);

}  // namespace lockstep
