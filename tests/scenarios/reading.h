// Short ways to read texts as scenario files in tests.
#pragma once

#include <string>

#include "scenarios/io/reader.h"
#include "scenarios/io/stage.h"
#include "tests/support/temporary_folder.h"

namespace lockstep {

inline Scenario named(const std::string& name) {
  Scenario scenario;
  scenario.name = name;
  return scenario;
}

// A file with the two keys that have no default, and `rest`.
inline std::string with_head(const std::string& rest) { return "schema: 1\nname: a\n" + rest; }

// The rules that refuse a text in the reading stage, each as often as it does: "Y03 Y05 Y05", or
// "".
inline std::string reading_rules(const std::string& text, const std::string& file = "file.yaml") {
  std::string rules;
  for (const ScenarioError& error : read_stage(text, file).errors)
    rules += (rules.empty() ? "" : " ") + error.rule;
  return rules;
}

// The only error of a text, as printed; all of them if there are several.
inline std::string reading_error(const std::string& text, const std::string& file = "file.yaml") {
  std::string errors;
  for (const ScenarioError& error : read_stage(text, file).errors) {
    errors += (errors.empty() ? "" : "\n") + error.text();
  }
  return errors;
}

}  // namespace lockstep
