// A case whose ranks are processes: each judges its own, and the worst of their results is the
// case's.
#pragma once

#include <vector>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"

namespace lockstep {

bool wants_processes(const Scenario& scenario);
CaseResult run_case_in_processes(const Scenario& scenario, const RunOptions& options);

// Chooses among one result for each rank: a difference goes before everything else, and what a rank
// says of itself before what it says of others. Not empty.
CaseResult worst(std::vector<CaseResult> ranks);

}  // namespace lockstep
