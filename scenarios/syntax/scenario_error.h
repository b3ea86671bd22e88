// One refusal of a scenario file, by a rule of reading (Y01..Y08) or of legality (L00..L44).
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
  int stands_for = 1;  // Errors, where the others of a rule were not kept.
  std::string text() const;
};
// One line per error, for each file at most twenty and how many more there are: nobody reads a
// thousand lines, and they would push what was said before off the screen. The last line does not
// end with a newline.
std::string text_of(const std::vector<ScenarioError>& errors);

}  // namespace lockstep
