// The words of a command as a shell would make them from a script's text: quotes, backslashes,
// comments, variables and arrays that the script itself sets. Nothing is executed.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// A thing that only a shell can know: a variable that the text does not set, a command whose output
// is asked for.
struct ShellUnknown {
  int line = 0;
  std::string written;  // "$S"
  std::string what;     // "$S is not set in this file: ..."
};

struct ShellWord {
  std::string text;  // Without what is unknown.
  int line = 0;      // The line of its first character, from 1.
  std::vector<ShellUnknown> unknown;
};
using ShellCommand = std::vector<ShellWord>;

// Each simple command of the text, assignments left out; that of `bash -c "..."` too, after the one
// that it stands in. RequestError, which names `file` and a line, for a quote without its end.
std::vector<ShellCommand> shell_commands(const std::string& text, const std::string& file);

}  // namespace lockstep
