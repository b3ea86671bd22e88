// The `lockstep` command line.
#include "harness/cli/commands.h"

int main(int count, char** words) { return lockstep::run_command_line({words + 1, words + count}); }
