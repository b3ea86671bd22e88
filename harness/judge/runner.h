// Runs one scenario in one precision: engine and oracle side by side over the same documents, in
// this process.
#pragma once

#include <string>

#include "harness/case/run_options.h"
#include "harness/case/verdict.h"
#include "scenarios/scenario.h"

namespace lockstep {

// `scenario` lists one precision. First a run that is looked at after every pass, which names a
// difference best; then one run per schedule that nobody looks at before its end, because looking
// drains the device and so hides races. Ranks of the scenario are threads here, or the one of
// `options.ranks`; run_case() chooses.
CaseResult judge_case(const Scenario& scenario, const RunOptions& options);

// The case with token and replay line, before it ran.
CaseResult unjudged_case(const Scenario& scenario, const RunOptions& options);

// The command that runs this case again, from any folder of this machine.
std::string replay_line(const Scenario& scenario, const std::string& token,
                        const RunOptions& options);

}  // namespace lockstep
