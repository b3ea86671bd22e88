// YAML to Scenario and back. Errors carry place and rule; all errors of a stage are reported.
#pragma once

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/rules/check.h"
#include "scenarios/scenario.h"
#include "scenarios/schema/words.h"
#include "scenarios/syntax/scenario_error.h"

namespace lockstep {

// The outcome of reading a file. A refused file has errors (lowest rule first, all of one stage:
// reading, then legality, then not built). It may still have an `expect` section, by which the
// refusal itself is judged.
struct ReadResult {
  Scenario scenario;
  std::vector<ScenarioError> errors;
  // The digest of the documents that were read and found good; "" without. Who runs the scenario
  // puts it into data.digest, so that other bytes are refused when they are opened again.
  std::string data_digest = {};
  std::set<std::string> keys = {};  // The paths of the keys that the file has.
  bool ok() const { return errors.empty(); }
  // The rule that `expect.error` must name: the lowest one that refuses, or "none".
  std::string rule() const { return errors.empty() ? "none" : errors.front().rule; }
};

// Reads, checks legality, then whether it is built. Never opens a device. A file that cannot be
// read is Y01.
ReadResult read_scenario_file(const std::string& path);
// `file` names the text in errors; data paths are relative to its folder.
ReadResult read_scenario_text(const std::string& text, const std::string& file);

// docs/scenario-reference.md, section 6.
std::string canonical_form(const Scenario& scenario);  // One line of JSON.
// Writes only keys that differ from their defaults; the text reads back equal.
std::string to_yaml(const Scenario& scenario);
// Every key that the canonical form has; reads back equal.
std::string to_full_yaml(const Scenario& scenario);
std::string make_token(const Scenario& scenario);
// Throws TokenError (exit status 2) for a wrong version, checksum or length, with what to do.
struct TokenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Data paths are relative to `folder`, or to the working folder if it is empty.
Scenario read_token(const std::string& token, const std::string& folder = "");

}  // namespace lockstep
