#include "scenarios/syntax/scenario_error.h"

#include <algorithm>

namespace lockstep {

std::string ScenarioError::text() const {
  const auto place = [](int number) { return std::to_string(std::max(number, 1)) + ":"; };
  // An error in values that the command line changed belongs to no file.
  std::string out = file.empty() ? "" : file + ":" + place(line) + place(column) + " ";
  out += key + ": " + what + " [" + rule + "]";
  if (!why.empty()) out += ": " + why;
  if (!nearest.empty()) out += "; nearest legal: " + nearest;
  return out;
}

std::string text_of(const std::vector<ScenarioError>& errors) {
  std::string lines;
  for (const ScenarioError& error : errors) lines += (lines.empty() ? "" : "\n") + error.text();
  return lines;
}

}  // namespace lockstep
