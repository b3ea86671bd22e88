// One refusal of a scenario file, by a rule of reading (Y01..Y08) or of legality (L00..L40).
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Printed as `file:line:column: key: what is wrong [rule]: why; nearest legal: value`.
struct ScenarioError {
  std::string rule;  // "Y03", "L17", "L00"
  std::string file;
  int line = 0, column = 0;  // 1-based; 0 if the error concerns the file as a whole.
  std::string key, what, why, nearest;
  std::string text() const;
};
// One line per error; the last one does not end with a newline.
std::string text_of(const std::vector<ScenarioError>& errors);

}  // namespace lockstep
