// The cases of a campaign: equal campaign seed, profile and index, equal case, in any order and on
// any machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/generate/features.h"
#include "harness/generate/invalid_case.h"
#include "harness/generate/likeness.h"
#include "harness/generate/outside.h"

namespace lockstep {

// The seed of case `index`: what `Choices` draws the scenario from.
std::uint64_t case_seed(std::uint64_t campaign_seed, std::int64_t index);

struct CampaignCase {
  std::uint64_t seed = 0;
  Scenario scenario;                   // One precision.
  std::optional<InvalidCase> invalid;  // About one in 20: must be refused, nothing is run.
};

// small: single schedules, tens of milliseconds. schedules: each case under several random or PCT
// schedules. near-legal: only scenarios that must be refused. `like`: each case is drawn around
// that one, and none is to be refused.
const std::vector<std::string>& profiles();
CampaignCase make_case(std::uint64_t campaign_seed, std::int64_t index, const std::string& profile,
                       const Outside& outside = {}, const Likeness* like = nullptr);

}  // namespace lockstep
