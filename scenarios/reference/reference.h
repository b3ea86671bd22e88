// The reference of schema 1, made from the tables of keys and rules: for people, for
// docs/scenario-reference.md and for editors.
#pragma once

#include <string>

namespace lockstep {

enum class Form { text, markdown };
std::string key_reference(Form form);
// The rows of one rule ("L26"), or of all if `id` is empty. Nothing if there is no such rule.
std::string rule_reference(Form form, const std::string& id = "");

// JSON Schema, draft 7, of a scenario file: one object on one line.
std::string json_schema();

}  // namespace lockstep
