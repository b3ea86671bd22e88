// Faults and mutations by name, as --plant and --mutate-oracle take them.
#pragma once

#include <string>
#include <vector>

#include "harness/options.h"
#include "harness/runner.h"

namespace lockstep {

// All that --plant knows: kernels, engine, and those of the worker.
std::vector<std::string> known_faults();
// Sets fault and mutation. Throws RequestError for an unknown name, with the nearest.
void take_planted(const Options& options, RunOptions& run);

}  // namespace lockstep
