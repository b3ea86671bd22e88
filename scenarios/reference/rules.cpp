#include <algorithm>

#include "scenarios/io/stage.h"
#include "scenarios/reference/reference.h"
#include "scenarios/reference/tables.h"
#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

bool is_of_reading(const Rule& rule) { return rule.id.text[0] == 'Y'; }

// Bars end a cell of a table, even in backticks.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

// The value that the program itself proposes for the example.
std::string nearest_of(const Rule& rule) {
  const std::vector<ScenarioError> errors = errors_of_example(rule);
  if (errors.empty() || errors.front().nearest.empty()) return "";
  const ScenarioError& error = errors.front();
  if (is_of_reading(rule)) return error.nearest;
  // "kind: text" is another key of the same section.
  const std::size_t end = error.nearest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  const bool names_a_key =
      end != 0 && end != std::string::npos && error.nearest.compare(end, 2, ": ") == 0;
  return names_a_key ? error.key.substr(0, error.key.rfind('.') + 1) + error.nearest
                     : error.key + ": " + error.nearest;
}

std::string markdown_row(const Rule& rule) {
  const std::string nearest = nearest_of(rule);
  const std::string tick = nearest.empty() || is_of_reading(rule) ? "" : "`";
  return std::string("| ") + rule.id.text + " | " + cell(rule.text.text) + " | " +
         cell(rule.why.text) + " | `" + cell(rule.illegal.text) + "` | " + tick + cell(nearest) +
         tick + " |\n";
}

std::string text_entry(const Rule& rule) {
  const std::string nearest = nearest_of(rule);
  return std::string(rule.id.text) + "  " + rule.text.text + "\n     why: " + rule.why.text +
         "\n     illegal: " + rule.illegal.text +
         (nearest.empty() ? "" : "\n     nearest legal: " + nearest) + "\n";
}

}  // namespace

std::vector<ScenarioError> errors_of_example(const Rule& rule) {
  const std::string text = is_of_reading(rule)
                               ? std::string(rule.illegal.text)
                               : std::string("{schema: 1, name: x, ") + rule.illegal.text + "}";
  ReadStage stage = read_stage(text, "example.yaml");
  if (is_of_reading(rule)) return stage.errors;
  // Examples with text name a folder that is nowhere: legality does not look at it.
  std::erase_if(stage.errors, [](const ScenarioError& error) { return error.rule == "Y08"; });
  if (!stage.errors.empty()) return stage.errors;
  std::vector<ScenarioError> errors = check_legality(stage.scenario);
  return errors.empty() ? check_built(stage.scenario) : errors;
}

std::string rule_reference(Form form, const std::string& id) {
  std::string out;
  for (const Rule& rule : all_rules()) {
    if (id.empty() || id == rule.id.text)
      out += form == Form::text ? text_entry(rule) : markdown_row(rule);
  }
  if (form == Form::text || out.empty()) return out;
  return "| rule | text | reason | illegal | nearest legal |\n|---|---|---|---|---|\n" + out;
}

}  // namespace lockstep
