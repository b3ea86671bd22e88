#pragma once

#include <string>
#include <vector>

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

}  // namespace lockstep
