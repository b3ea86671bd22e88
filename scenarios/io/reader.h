// YAML to Scenario and back. Errors carry place and rule; all errors of a stage are reported.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// One refusal: `file:line:column: key: what is wrong [rule]: why; nearest legal: value`.
struct ScenarioError {
  std::string rule;  // "Y03", "L17", "L00"
  std::string file;
  int line = 0, column = 0;  // 1-based; 0 where the file as a whole is meant.
  std::string key, what, why, nearest;
  std::string text() const;
};
std::string text_of(const std::vector<ScenarioError>& errors);  // A line each, the last one open.

// What a file came to. A file that is refused has errors (lowest rule first, all of one stage: reading, then
// legality, then not built), and may still have an `expect` section, which a refused file is judged by.
struct ReadResult {
  Scenario scenario;
  std::vector<ScenarioError> errors;
  bool ok() const { return errors.empty(); }
  // The rule that `expect.error` must name: the lowest one that refuses, or "none".
  std::string rule() const { return errors.empty() ? "none" : errors.front().rule; }
};

// Reads, checks legality, then whether it is built. Never opens a device. A file that cannot be read is Y01.
ReadResult read_scenario_file(const std::string& path);
// `file` names the text in errors; data paths are relative to its folder.
ReadResult read_scenario_text(const std::string& text, const std::string& file);

// Legality alone (rules L01..L40 of scenario.md section 4), for scenarios made in memory. Lowest rule first.
std::vector<ScenarioError> check_legality(const Scenario& scenario);
// L00: what is legal but not built yet.
std::vector<ScenarioError> check_built(const Scenario& scenario);
// Features of schema 1 and whether they are built, for `describe --built`.
struct Feature {
  std::string key;
  bool built;
};
std::vector<Feature> features();

// scenario.md section 6.
std::string canonical_form(const Scenario& scenario);  // One line of JSON.
std::string to_yaml(const Scenario& scenario);         // Only what differs from the defaults; reads back equal.
std::string make_token(const Scenario& scenario);
// Throws TokenError (exit status 2) for a wrong version, checksum or length, with what to do.
struct TokenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Data paths are relative to `folder`; none: to the working folder.
Scenario read_token(const std::string& token, const std::string& folder = "");

// Keys that have no effect in this scenario (layer kinds the pattern lacks, machinery switched off).
std::vector<std::string> keys_without_effect(const Scenario& scenario);

const char* to_text(Numerics);
const char* to_text(GraphImpl);
const char* to_text(GraphModule);

}  // namespace lockstep
