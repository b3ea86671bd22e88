#include "scenarios/syntax/scenario_error.h"

#include <algorithm>
#include <map>

#include "scenarios/syntax/schema_text.h"

namespace lockstep {

namespace {

// A value may be a list of a megabyte.
std::string cut(const std::string& text) {
  std::size_t end = std::min<std::size_t>(text.size(), 2000);
  while (end < text.size() && end > 0 && (text[end] & 0xC0) == 0x80) --end;  // No half characters.
  return end < text.size() ? text.substr(0, end) + "..." : text;
}

}  // namespace

std::string ScenarioError::text() const {
  const auto place = [](int number) { return std::to_string(std::max(number, 1)) + ":"; };
  // An error in values that the command line changed belongs to no file.
  std::string out = file.empty() ? "" : shown(file) + ":" + place(line) + place(column) + " ";
  out += shown(key) + ": " + cut(what) + " [" + rule + "]";
  if (!why.empty()) out += ": " + why;
  if (!nearest.empty()) out += "; nearest legal: " + cut(nearest);
  return out;
}

std::string text_of(const std::vector<ScenarioError>& errors) {
  constexpr int kMost = 20;
  std::string lines;
  const auto add = [&](const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; };
  std::map<std::string, int> printed, left;  // By file.
  for (const ScenarioError& error : errors) {
    if (++printed[error.file] <= kMost) {
      add(error.text());
    } else {
      left[error.file] += error.stands_for;
    }
  }
  for (const auto& [file, count] : left) {
    add((file.empty() ? "" : shown(file) + ": ") + "and " + std::to_string(count) + " more error" +
        (count == 1 ? "" : "s"));
  }
  return lines;
}

}  // namespace lockstep
