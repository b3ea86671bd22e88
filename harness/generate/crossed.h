// Cases that have the machinery of several: an engine that honours little of what is drawn would
// otherwise meet parts of its machinery together only by chance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

class CrossedCases {
 public:
  // Equal seed, profile and index, equal case.
  CrossedCases(std::uint64_t campaign_seed, const std::string& profile);

  // Case `index` of the campaign, and each part of its machinery (graphs, offload, sharding,
  // evaluations, ...) by chance from another case that has it. It may be illegal: a projection
  // repairs it.
  Scenario at(std::int64_t index) const;

 private:
  std::uint64_t seed_;
  std::string profile_;
  std::vector<Scenario> donors_;
};

}  // namespace lockstep
