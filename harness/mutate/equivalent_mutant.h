// Checks whether a call has any effect, as the machine-checked argument that a fault at the device
// is an equivalent mutant.
#pragma once

#include "harness/case/verdict.h"
#include "harness/inject/device_fault.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Runs the engine without the fault and examines the call that the fault would change. Holds if
// nothing that the host sees depends on what the call writes: it is in a graph that is never
// launched, or all that it writes is overwritten before it is read, or was there already. Then the
// call may be left out. Of an operator that changes it instead, a second run has the changed call,
// and nothing may depend on what that writes either: the call without effect was left out, and one
// without effect was put in. Otherwise violated.
CaseResult judge_equivalence(const Scenario& scenario, const DeviceFault& fault);
bool can_be_equivalent(DeviceOperator op);

}  // namespace lockstep
