// The faults that have a name of their own: in kernels and engine, in the oracle, in the checker.
#pragma once

#include <vector>

#include "harness/mutate/cases.h"
#include "harness/mutate/fault.h"

namespace lockstep {

// In the order kernels, engine, oracle, checker. Every case is one that they may show in.
std::vector<Fault> named_faults(const std::vector<MutationCase>& cases);

}  // namespace lockstep
