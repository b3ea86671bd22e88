// Which elements of the parameters each rank says it holds: together they must be all of them, or a
// comparison of what the ranks hold would pass over the rest.
#pragma once

#include <string>
#include <vector>

#include "engine/train/trainer.h"
#include "harness/expect/parameter_table.h"

namespace lockstep {

// "" or the first gap or overlap, as a sentence. `ranks` has the views of each rank. Sharded
// parameters are cut among the ranks; others are whole on each.
std::string uncovered(const std::vector<ParameterShape>& parameters, bool sharded,
                      const std::vector<std::vector<ParameterView>>& ranks);

}  // namespace lockstep
