// A case whose ranks are processes: each judges its own, and the worst of their results is the
// case's.
#pragma once

#include <vector>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"

namespace lockstep {

bool wants_processes(const Scenario& scenario);
CaseResult run_case_in_processes(const Scenario& scenario, const RunOptions& options);

// Selects from one result per rank: a difference takes precedence over everything else, and a
// rank's own failure over reports about other ranks. `ranks` must not be empty.
CaseResult worst(std::vector<CaseResult> ranks);

}  // namespace lockstep
