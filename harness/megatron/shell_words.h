// The words of a command as a shell would make them from a script's text: quotes, backslashes,
// comments, variables and arrays that the script itself sets. Nothing is executed.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct ShellWord {
  std::string text;
  int line = 0;  // The line of its first character, from 1.
};
using ShellCommand = std::vector<ShellWord>;

// Each simple command of the text, assignments left out. RequestError, which names `file` and a
// line, for a quote without its end, and for what only a shell can know: a variable that the text
// does not set, a command whose output is asked for.
std::vector<ShellCommand> shell_commands(const std::string& text, const std::string& file);

}  // namespace lockstep
