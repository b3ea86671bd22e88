// Small programs that show what no scenario does: a host that runs ahead, a run continued from a
// checkpoint, and orders of streams and graphs that the engine does not use yet but its checker
// must judge.
#pragma once

#include <vector>

#include "engine/device/observer.h"
#include "harness/judge/runner.h"

namespace lockstep {

struct FixtureProgram {
  const char* name;
  // Runs it under the planted fault; `options` sets its judges.
  CaseResult (*run)(const RunOptions& options);
};
const std::vector<FixtureProgram>& fixture_programs();

// Runs three steps of a loader whose host waits for the device only where the loader says so.
void run_ahead_of_the_device(Observer& observer);

}  // namespace lockstep
