// Claims that must hold of any bytes that are given to the reader as a scenario. Shared by the
// fuzzer and its corpus's test.
#pragma once

#include <algorithm>
#include <string>

#include "scenarios/documents/raw_documents.h"
#include "scenarios/io/reader.h"
#include "scenarios/io/stage.h"

namespace lockstep {

// Bytes that could name files outside the folder the reader is run in. They are not run: what lies
// there is not known.
inline bool may_leave_the_folder(const std::string& bytes) {
  return bytes.find("path") != std::string::npos &&
         (bytes.find_first_of("/\\") != std::string::npos || bytes.find("..") != std::string::npos);
}

inline std::string all_errors(const std::vector<ScenarioError>& errors) {
  std::string text;
  for (const ScenarioError& error : errors) text += "\n" + error.text();
  return text;
}

// "" or why a scenario and what it was written as are not the same.
inline std::string reads_back(const Scenario& scenario, const std::string& written,
                              const std::string& what) {
  const ReadStage again = read_stage(written, "file.yaml");
  if (!again.errors.empty())
    return what + " is refused:" + all_errors(again.errors) + "\n" + written;
  const std::string before = canonical_form(scenario), after = canonical_form(again.scenario);
  return before == after ? "" : what + " reads back as\n" + after + "\nand was\n" + before;
}

inline std::string token_reads_back(Scenario scenario, Numerics numerics) {
  scenario.numerics = {numerics};
  const std::string token = make_token(scenario);
  if (scenario.data.kind == DataKind::text || scenario.data.kind == DataKind::jsonl) {
    scenario.data.digest = data_digest(scenario);
  }
  return canonical_form(read_token(token)) == canonical_form(scenario)
             ? ""
             : "the token reads back as another: " + token;
}

// A refusal is of use only if it names a rule and a place that is there.
inline std::string is_of_use(const ScenarioError& error, const std::string& bytes) {
  if (error.rule.size() != 3) return "an error without a rule: " + error.text();
  const auto lines = 1 + std::count(bytes.begin(), bytes.end(), '\n');
  if (error.line < 0 || error.line > lines || error.column < 0)
    return "an error of no line: " + error.text();
  return error.key.empty() || error.what.empty() ? "an error that says nothing: " + error.text()
                                                 : "";
}

// "" or the first claim that these bytes refute.
inline std::string refuted_claim(const std::string& bytes) {
  if (may_leave_the_folder(bytes)) return "";
  try {
    read_token(bytes);
  } catch (const TokenError&) {
  }
  const ReadStage stage = read_stage(bytes, "file.yaml");
  const ReadResult whole = read_scenario_text(bytes, "file.yaml");
  for (const auto* errors : {&stage.errors, &whole.errors}) {
    for (const ScenarioError& error : *errors) {
      if (std::string why = is_of_use(error, bytes); !why.empty()) return why;
    }
  }
  if (!stage.errors.empty()) return whole.ok() ? "refused by the first stage alone" : "";

  const std::string form = canonical_form(stage.scenario), yaml = to_yaml(stage.scenario);
  if (std::string why = reads_back(stage.scenario, form, "the canonical form"); !why.empty())
    return why;
  if (std::string why = reads_back(stage.scenario, yaml, "the YAML"); !why.empty()) return why;
  if (read_stage(yaml, "file.yaml").scenario.description != stage.scenario.description) {
    return "the YAML has another description:\n" + yaml;
  }
  // A refusal may be for a key of another kind of data, which is not written.
  for (const std::string& written :
       whole.ok() ? std::vector{form, yaml} : std::vector<std::string>()) {
    const std::string rule = read_scenario_text(written, "file.yaml").rule();
    if (rule != whole.rule())
      return "judged by " + whole.rule() + ", and by " + rule + " when written as\n" + written;
  }
  for (const Numerics numerics : stage.scenario.numerics) {
    if (std::string why = token_reads_back(stage.scenario, numerics); !why.empty()) return why;
  }
  if (whole.ok()) keys_without_effect(whole.scenario);
  return "";
}

}  // namespace lockstep
