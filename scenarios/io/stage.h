// The first stage of reading alone: rules Y01..Y08, before legality.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/scenario.h"
#include "scenarios/syntax/node.h"

namespace lockstep {

struct ReadStage {
  Scenario scenario;
  std::optional<Node> root;  // Nothing where the text is no YAML.
  std::vector<ScenarioError> errors;
  std::string data_digest;  // The digest of its documents; "" without.
};

ReadStage read_stage(const std::string& text, const std::string& file);

}  // namespace lockstep
