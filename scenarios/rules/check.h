// The verdict of all rules on a scenario.
#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/syntax/scenario_error.h"

namespace lockstep {

// Legality alone (rules L01..L44, docs/scenario-reference.md, section 4), for scenarios made in
// memory. The lowest rule comes first.
std::vector<ScenarioError> check_legality(const Scenario& scenario);
// L00: requests that are legal but not built yet.
std::vector<ScenarioError> check_built(const Scenario& scenario);
// Features of schema 1 and whether they are built, for `describe --built`.
struct Feature {
  std::string key;
  bool built;
};
std::vector<Feature> features();

// Keys that have no effect in this scenario (layer kinds the pattern lacks, machinery switched
// off).
std::vector<std::string> keys_without_effect(const Scenario& scenario);

}  // namespace lockstep
