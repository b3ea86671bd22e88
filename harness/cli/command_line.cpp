// Finds the command, and turns any exception into an exit status with one line on stderr.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "harness/base/run_folder.h"
#include "harness/base/terminal.h"
#include "harness/base/version.h"
#include "harness/case/guard.h"
#include "harness/cli/commands.h"
#include "harness/run/failure.h"
#include "scenarios/syntax/nearest.h"

namespace lockstep {
namespace {

std::string help() {
  std::string text =
      "lockstep: a training engine with CUDA graphs, and an oracle that it must equal\n"
      "bit for bit\n\n";
  for (const Command& command : commands()) {
    std::string name = command.name;
    name.resize(14, ' ');
    text += "  lockstep " + name + command.does + "\n";
  }
  text +=
      "\n  lockstep help COMMAND      what it does, its options, examples\n"
      "  lockstep completion SHELL  a completion script for bash or zsh\n"
      "  lockstep man               the manual page, for man -l -\n"
      "  lockstep --version\n\n";
  return text + fitted(std::string(kExitStatuses) + "\n", {.width = 80});
}

const Command& command_named(const std::string& name) {
  std::vector<std::string> names{"--help", "--version"};
  for (const Command& command : commands()) {
    if (name == command.name) return command;
    names.push_back(command.name);
  }
  const bool is_file = name.ends_with(".yaml") || name.ends_with(".yml");
  if (is_file || (name.size() > 20 && name.starts_with("ls"))) {
    throw RequestError("unknown command " + name + "; for a " + (is_file ? "scenario" : "token") +
                       ": lockstep " + (is_file ? "verify " : "replay ") + name);
  }
  throw RequestError("unknown command " + name + nearest_hint(name, names) + "; see --help");
}

ExitStatus print_generated(const Words& words) {
  const bool is_manual = words.front() == "man";
  if (!is_manual && words.size() != 2) throw RequestError("completion takes bash or zsh");
  if (is_manual && words.size() != 1) throw RequestError("one word too many: " + words[1]);
  std::fputs((is_manual ? manual_page() : completion_script(words[1])).c_str(), stdout);
  return ExitStatus::held;
}

// Whoever asks one command for what another one does is told which.
void require_options_of(const Command& asked, const Words& words) {
  const Options own = asked.options();
  for (const std::string& word : words) {
    if (word == "--") return;
    const std::string name = word.rfind("--", 0) == 0 ? word.substr(2, word.find('=') - 2) : "";
    if (name.empty() || own.knows(name.c_str())) continue;
    std::string others;
    for (const Command& command : commands()) {
      if (command.options().knows(name.c_str()))
        others += (others.empty() ? "" : ", ") + std::string(command.name);
    }
    if (others.empty()) continue;
    throw RequestError(std::string(asked.name) + " has no option --" + name + "; it belongs to " +
                       others);
  }
}

// "-" as the file of an output is standard output. Whatever else is printed goes to standard error
// then, so that the output holds that file alone.
Words with_standard_output(Words words) {
  int descriptor = -1;
  const auto place = [&]() -> std::string {
    if (descriptor < 0) {
      descriptor = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
      if (descriptor < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return std::string("/dev/stdout");  // Then the file has company.
    }
    return "/proc/self/fd/" + std::to_string(descriptor);
  };
  for (const char* name :
       {"--json", "--junit", "--html", "--output", "-o", "--trace", "--yaml", "--offload-json"}) {
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i] == "-" && words[i - 1] == name) words[i] = place();
      if (words[i] == std::string(name) + "=-") words[i] = std::string(name) + "=" + place();
    }
  }
  return words;
}

ExitStatus dispatch(const Words& words) {
  if (words.empty()) throw RequestError("no command\n" + help());
  const std::string& name = words.front();
  if (name == "help" && words.size() > 1) {
    std::fputs(command_named(words[1]).options().help().c_str(), stdout);
    return ExitStatus::held;
  }
  if (name == "--help" || name == "-h" || name == "help") {
    std::fputs(help().c_str(), stdout);
    return ExitStatus::held;
  }
  if (name == "completion" || name == "man") return print_generated(words);
  if (name == "--version" || name == "-V") {
    std::printf("lockstep %s (%s)\n", version(), revision());
    return ExitStatus::held;
  }
  const Command& command = command_named(name);
  guard_host();
  remove_run_folders_left();
  const Words rest(words.begin() + 1, words.end());
  require_options_of(command, rest);
  return command.run(rest);
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

const std::vector<Command>& commands() {
  static const std::vector<Command> list{
      {"verify", "engine against oracle: files, or the built-in library", verify_options,
       verify_command},
      {"fuzz", "random scenarios, until a count or a budget", fuzz_options, fuzz_command},
      {"replay", "runs one case again, exactly, from its token or file", replay_options,
       replay_command},
      {"shrink", "the smallest scenario that fails for the same reason", shrink_options,
       shrink_command},
      {"mutate", "plants faults, reports which are caught, by which judge", mutate_options,
       mutate_command},
      {"train", "trains with the engine alone", train_options, train_command},
      {"bench", "times of steps, kernels, copies and exchanges", bench_options, bench_command},
      {"plan-packing", "proposes capacities for the packs of a data set", plan_packing_options,
       plan_packing_command},
      {"engine", "this engine behind the engine protocol", engine_options, engine_command},
      {"describe", "what a scenario means; needs no device", describe_options, describe_command},
      {"doctor", "what this machine has and can run", doctor_options, doctor_command},
  };
  return list;
}

int run_command_line(const Words& given) {
  occupy_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is a failed write with a message.
  const Words words = with_standard_output(given);
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
