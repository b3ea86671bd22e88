// The faults that have a name of their own: in kernels and engine, in the oracle, in the checker.
#pragma once

#include <vector>

#include "harness/mutate/cases.h"
#include "harness/mutate/fault.h"

namespace lockstep {

// Returns the faults in the order kernels, engine, documents, oracle, checker. Each may show in
// every case.
std::vector<Fault> named_faults(const std::vector<MutationCase>& cases);

}  // namespace lockstep
