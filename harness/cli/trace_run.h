// Runs the engine of one case on the simulator for its trace, as an unobserved run does, without
// judging it.
#pragma once

#include "harness/judge/runner.h"
#include "harness/report/trace.h"

namespace lockstep {

// `scenario` has one precision and one schedule. A run that throws is traced up to there.
Trace trace_case(const Scenario& scenario, const RunOptions& options);

}  // namespace lockstep
