// Checks the elements of parameters that the ranks say they hold. Together they must be all
// elements, or comparing what the ranks hold would miss the rest.
#pragma once

#include <string>
#include <vector>

#include "engine/train/trainer.h"
#include "harness/expect/parameter_table.h"

namespace lockstep {

// Returns "" or the first gap, overlap or view of no parameter as a sentence. `ranks` has the views
// of each rank. Sharded parameters are cut among the ranks; others are whole on each, or on one of
// the pipeline stages with equal numbers among their ranks; those of experts are whole on each
// group of `expert_ranks` ranks that follow one another.
std::string uncovered(const std::vector<ParameterShape>& parameters, bool sharded,
                      const std::vector<std::vector<ParameterView>>& ranks, std::int64_t stages = 1,
                      std::int64_t expert_ranks = 1);

}  // namespace lockstep
