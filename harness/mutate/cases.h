// The cases that faults are planted into: those of the library, smallest first, then the
// fixture programs (fixture_programs.h).
#pragma once

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/inject/mutator.h"
#include "harness/mutate/fixture_programs.h"

namespace lockstep {

struct MutationCase {
  Scenario scenario;  // One precision. A fixture program has only a name.
  std::int64_t ops = 0;
  // The calls of a run that each operator could change.
  std::array<DeviceMutator::Sites, kDeviceOperators.size()> sites;
  std::set<std::pair<std::string, std::int64_t>> last_launches;  // DeviceMutator::last_launches().
  const FixtureProgram* program = nullptr;
};

// The `most` cases of the built-in library that are reckoned the shortest, of those that hold and
// are expected to, and all fixture programs. Where a signal came, some are not recorded.
std::vector<MutationCase> mutation_cases(std::int64_t most);

}  // namespace lockstep
