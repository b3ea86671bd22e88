// The commands of the program: each takes the words after its name.
#pragma once

#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/options.h"

namespace lockstep {

using Words = std::vector<std::string>;

// A command and its options.
struct Command {
  const char* name;
  const char* does;
  Options (*options)();
  ExitStatus (*run)(const Words& words);
};
// In the order of the help text.
const std::vector<Command>& commands();

Options verify_options();
ExitStatus verify_command(const Words& words);
Options fuzz_options();
ExitStatus fuzz_command(const Words& words);
Options replay_options();
ExitStatus replay_command(const Words& words);
Options shrink_options();
ExitStatus shrink_command(const Words& words);
Options mutate_options();
ExitStatus mutate_command(const Words& words);
Options train_options();
ExitStatus train_command(const Words& words);
Options bench_options();
ExitStatus bench_command(const Words& words);
Options plan_packing_options();
ExitStatus plan_packing_command(const Words& words);
Options engine_options();
ExitStatus engine_command(const Words& words);
Options describe_options();
ExitStatus describe_command(const Words& words);
Options doctor_options();
ExitStatus doctor_command(const Words& words);

// Generated from the options of all commands: scripts for a shell, "bash" or "zsh", and a manual
// page.
std::string completion_script(const std::string& shell);
std::string manual_page();

// The whole program: the first word is the command.
int run_command_line(const Words& words);

}  // namespace lockstep
