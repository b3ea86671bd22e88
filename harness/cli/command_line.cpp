// Finds the command, and turns any exception into an exit status with one line on stderr.
#include <fcntl.h>

#include <csignal>
#include <cstdio>

#include "harness/base/run_folder.h"
#include "harness/base/version.h"
#include "harness/case/guard.h"
#include "harness/cli/commands.h"
#include "harness/run/failure.h"
#include "scenarios/syntax/nearest.h"

namespace lockstep {
namespace {

struct Command {
  const char* name;
  const char* does;
  ExitStatus (*run)(const Words&);
};

constexpr Command kCommands[] = {
    {"verify", "engine against oracle, bit for bit, for scenario files or the built-in library",
     verify_command},
    {"fuzz", "random scenarios on worker processes, until a count or a budget", fuzz_command},
    {"replay", "runs one case again, exactly, from its token or file", replay_command},
    {"shrink", "the smallest scenario that still fails for the same reason", shrink_command},
    {"mutate", "plants faults, and reports which are caught and by which judge", mutate_command},
    {"train", "trains with the engine alone", train_command},
    {"bench", "scenarios a second, and step time of graphs against eager", bench_command},
    {"plan-packing", "proposes capacities for the packs of a data set", plan_packing_command},
    {"engine", "this engine behind the engine protocol, for who judges engines", engine_command},
    {"describe", "what a scenario means; needs no device", describe_command},
    {"doctor", "what this machine has and can run", doctor_command},
};

std::string help() {
  std::string text =
      "lockstep: a training engine with CUDA graphs, and an oracle that it must equal bit for "
      "bit\n\n";
  for (const Command& command : kCommands) {
    std::string name = command.name;
    name.resize(14, ' ');
    text += "  lockstep " + name + command.does + "\n";
  }
  text += "\n  lockstep COMMAND --help    options of a command\n  lockstep --version\n\n";
  text +=
      "exit status: 0 all held, 1 violated, 2 bad request, 3 the environment failed, "
      "4 hang, 5 gave up\n";
  return text;
}

ExitStatus dispatch(const Words& words) {
  if (words.empty()) throw RequestError("no command\n" + help());
  const std::string& name = words.front();
  if (name == "--help" || name == "help") {
    std::fputs(help().c_str(), stdout);
    return ExitStatus::held;
  }
  if (name == "--version") {
    std::printf("lockstep %s (%s)\n", version(), revision());
    return ExitStatus::held;
  }
  for (const Command& command : kCommands) {
    if (name != command.name) continue;
    guard_host();
    remove_run_folders_left();
    return command.run({words.begin() + 1, words.end()});
  }
  std::vector<std::string> names{"--help", "--version"};
  for (const Command& command : kCommands) names.push_back(command.name);
  throw RequestError("unknown command " + name + nearest_hint(name, names) + "; see --help");
}

// A pipe to a worker must not be taken for one of the standard descriptors, of which somebody may
// have closed some. Output to such a descriptor is lost, as if it were closed still.
void occupy_standard_descriptors() {
  for (int i = 0; i <= 2; ++i) {
    if (::fcntl(i, F_GETFD) != -1) continue;
    if (::open(i == 1 ? "/dev/full" : "/dev/null", O_RDWR) != i)
      static_cast<void>(::open("/", O_RDONLY));
  }
}

}  // namespace

int run_command_line(const Words& words) {
  occupy_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is a failed write with a message.
  const FailureFiles files(words);
  ExitStatus status;
  try {
    status = dispatch(words);
  } catch (...) {
    files.write(failure_at_hand());
    return static_cast<int>(report_failure("lockstep: "));
  }
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return static_cast<int>(status);
  std::fputs("lockstep: standard output cannot be written\n", stderr);  // So it is no result.
  return static_cast<int>(ExitStatus::world_failed);
}

}  // namespace lockstep
