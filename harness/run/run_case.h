// Runs one case where it belongs: in this process, or with a process for each of its ranks.
#pragma once

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"

namespace lockstep {

// `scenario` lists one precision. With `options.ranks` it is always judged here.
CaseResult run_case(const Scenario& scenario, const RunOptions& options);

}  // namespace lockstep
