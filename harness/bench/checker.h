// The cost of checking: whole runs of the engine with and without it.
#pragma once

#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

struct CheckerCost {
  std::string scenario;
  double without = 0, with = 0;  // Median seconds of a run.
};

// The engine alone, from opening the device to the weight digest, `runs` times each way in turn. On
// the simulated device checking is the happens-before checker and the schedule that runs by tags;
// on a GPU, the checker.
CheckerCost time_checker(const Scenario& scenario, const std::string& device_kind, int runs);

}  // namespace lockstep
