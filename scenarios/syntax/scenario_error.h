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
  std::string source = {};  // The line of the file that it is about; "" without one.
  int stands_for = 1;       // Errors, where the others of a rule were not kept.
  std::string text() const;
};
// Each error's line, and indented below it the line of the file with a mark at the column. For each
// file at most twenty errors and how many more there are: nobody reads a thousand lines, and they
// would push what was said before off the screen. The last line does not end with a newline.
std::string text_of(const std::vector<ScenarioError>& errors);
// Gives each error that has a line in `text` that line.
void quote_source(std::vector<ScenarioError>& errors, const std::string& text);

}  // namespace lockstep
