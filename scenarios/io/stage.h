// The first stage of reading alone: rules Y01..Y08, before legality.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/syntax/node.h"

namespace lockstep {

struct ReadStage {
  Scenario scenario;
  std::optional<Node> root;  // Nothing where the text is no YAML.
  std::vector<ScenarioError> errors;
  std::string data_digest;          // The digest of its documents; "" without.
  std::set<std::string> keys = {};  // The paths of the keys that the text has.
};

ReadStage read_stage(const std::string& text, const std::string& file);

}  // namespace lockstep
