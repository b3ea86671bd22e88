// What offloading must move, worked out from the scenario without the engine's plan.
#pragma once

#include <cstdint>
#include <optional>

#include "scenarios/scenario.h"

namespace lockstep {

// Bytes to the host in a microbatch. Absent with modules of experts, whose rows are not those of a pack.
std::optional<std::int64_t> offloaded_bytes(const Scenario& scenario);

}  // namespace lockstep
