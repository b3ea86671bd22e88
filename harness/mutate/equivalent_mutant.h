// Checks whether a call has any effect, as the machine-checked argument that a fault at the device
// is an equivalent mutant.
#pragma once

#include "harness/case/verdict.h"
#include "harness/inject/device_fault.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Runs the engine without the fault and examines the call that the fault would change. Holds if
// nothing that the host sees depends on what the call writes: it is in a graph that is never
// launched; or, for operators that only leave the call out, all that it writes is overwritten
// before it is read, or was there already. Otherwise violated.
CaseResult judge_equivalence(const Scenario& scenario, const DeviceFault& fault);
bool can_be_equivalent(DeviceOperator op);

}  // namespace lockstep
