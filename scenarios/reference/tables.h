// The parts of the reference that tests look at.
#pragma once

#include <string>
#include <vector>

#include "scenarios/rules/legality.h"
#include "scenarios/schema/schema.h"
#include "scenarios/syntax/scenario_error.h"

namespace lockstep {

// Codes of the rules that look at the key, lowest first.
std::vector<std::string> rules_about(const Key& key);

// The errors that a rule's own example has: the file is refused by that rule, and by no lower one.
std::vector<ScenarioError> errors_of_example(const Rule& rule);

}  // namespace lockstep
