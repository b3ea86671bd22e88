// Steers the cases of a campaign towards pairs of features that seldom meet.
#pragma once

#include <cstdint>

#include "harness/generate/outside.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Returns that one of a few scenarios drawn for the case which has the rarest pairs: random
// scenarios seldom have them, and the cases before it in its block did not either. Equal arguments
// give the equal scenario, whatever was made before.
inline constexpr std::int64_t kSteeredBlock = 64;
Scenario steered_scenario(std::uint64_t campaign_seed, std::int64_t index,
                          const Outside& outside = {});

}  // namespace lockstep
