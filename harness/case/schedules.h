// Converts the scenario's `checker.schedule` to the simulator's options.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/device/backend.h"
#include "harness/explore/explore.h"
#include "scenarios/scenario.h"

namespace lockstep {

Pressure pressure_of(const Scenario& scenario);
// Returns the options for all schedules of the scenario.
ExploreOptions explore_options(const Scenario& scenario);
SimOptions sim_options(const Scenario& scenario, std::int64_t seed);
std::unique_ptr<Backend> open_backend(const std::string& device, const SimOptions& options,
                                      int gpu = 0);
// `scenario` narrowed to one precision and one schedule, which is what a token names.
Scenario narrowed(const Scenario& scenario, Numerics numerics, std::int64_t seed);

}  // namespace lockstep
