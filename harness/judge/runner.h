// Runs one scenario in one precision: engine and oracle side by side over the same documents, in
// this process.
#pragma once

#include <string>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"
#include "scenarios/scenario.h"

namespace lockstep {

// `scenario` lists one precision. The first run is compared after every pass, because that names a
// difference best. Then one run per schedule is compared only at its end, because comparing drains
// the device and so hides races. The ranks are threads of this process, or those of
// `options.ranks`; run_case() chooses.
CaseResult judge_case(const Scenario& scenario, const RunOptions& options);

// Returns the case with its token and replay line, before it has run.
CaseResult unjudged_case(const Scenario& scenario, const RunOptions& options);

// Returns the command that runs this case again, from any folder of this machine.
std::string replay_line(const Scenario& scenario, const std::string& token,
                        const RunOptions& options);

}  // namespace lockstep
