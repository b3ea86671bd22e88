// The commands of the program: each takes the words after its name.
#pragma once

#include <string>
#include <vector>

#include "harness/base/errors.h"

namespace lockstep {

using Words = std::vector<std::string>;

ExitStatus verify_command(const Words& words);
ExitStatus fuzz_command(const Words& words);
ExitStatus replay_command(const Words& words);
ExitStatus shrink_command(const Words& words);
ExitStatus mutate_command(const Words& words);
ExitStatus describe_command(const Words& words);
ExitStatus doctor_command(const Words& words);
ExitStatus train_command(const Words& words);
ExitStatus bench_command(const Words& words);
ExitStatus engine_command(const Words& words);
ExitStatus plan_packing_command(const Words& words);

// The whole program: the first word is the command.
int run_command_line(const Words& words);

}  // namespace lockstep
