// The equivalent-mutant check: whether a call does anything at all. It is the machine-checked
// argument for faults at the device that change nothing.
#pragma once

#include "harness/case/verdict.h"
#include "harness/inject/device_fault.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Runs the engine without the fault and looks at the call that it would strike. Holds if nothing
// that the host sees depends on what the call writes: it is in a graph that is never launched; or,
// for operators that only leave the call out, all it writes is overwritten before it is read, or
// was there already. Violated otherwise.
CaseResult judge_equivalence(const Scenario& scenario, const DeviceFault& fault);
bool can_be_equivalent(DeviceOperator op);

}  // namespace lockstep
