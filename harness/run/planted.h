// Faults and mutations by name, as --plant and --mutate-oracle take them.
#pragma once

#include <string>
#include <vector>

#include "harness/base/options.h"
#include "harness/case/run_options.h"
#include "harness/case/verdict.h"

namespace lockstep {

// All names that --plant takes, but for those of faults at the device.
std::vector<std::string> known_faults();

// Sets fault, mutation and blindness. Throws RequestError for an unknown name, with the nearest.
void take_planted(const Options& options, RunOptions& run);

// If the planted fault met no place in any case, or the checker itself has a planted error, cases
// that held are no evidence: they become violated by `vacuous`.
void require_that_the_fault_was_met(const RunOptions& run, std::vector<CaseResult>& results);

// "planted NAME: met 1192 times, not caught by this scenario", where the fault was met and every
// case held; "" otherwise.
std::string uncaught_fault(const RunOptions& run, const std::vector<CaseResult>& results);

}  // namespace lockstep
