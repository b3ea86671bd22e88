// `lockstep shrink TOKEN|FILE -o FILE`
#include "harness/shrink/shrink.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "harness/base/interrupt_guard.h"
#include "harness/base/options.h"
#include "harness/base/progress.h"
#include "harness/base/stopwatch.h"
#include "harness/base/terminal.h"
#include "harness/base/write_file.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/engine_commands.h"
#include "harness/cli/engine_shrink.h"
#include "harness/cli/write_reports.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "harness/run/planted.h"
#include "harness/run/suite.h"
#include "harness/run/worker.h"
#include "harness/shrink/reason.h"
#include "scenarios/documents/layout.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Every run there is repeated by itself where runs differ.
constexpr int kTriesOnAnEngine = 2;

// That of the checkout at hand; else of the tree to which the program belongs.
std::string regressions_folder() {
  const fs::path library = library_folder(), here = "scenarios/regressions";
  const char* chosen = std::getenv("LOCKSTEP_LIBRARY");
  std::error_code absent;
  if ((chosen == nullptr || *chosen == 0) && fs::is_directory(here, absent)) return here.string();
  for (const fs::path& folder : {library / "regressions", library.parent_path() / "regressions"}) {
    if (fs::is_directory(folder)) return folder.string();
  }
  throw WorldError("--promote: there is no folder regressions in or beside " + library.string());
}

// A name that no file there has.
std::string free_name(const std::string& folder, const std::string& wish) {
  std::string name = wish;
  if (folder.empty()) return name;
  for (int i = 2; fs::exists(fs::path(folder) / (name + ".yaml")); ++i)
    name = wish + "-" + std::to_string(i);
  return name;
}

bool is_of_a_checkout(const std::string& regressions) {
  std::error_code absent;
  return fs::exists(fs::path(regressions) / "../../CMakeLists.txt", absent);
}

// Returns the options of the first replay line in a file's comments, such as
// "--device sim --plant ...", for a message; "" without such a line.
std::string options_in_comments(const std::string& path) {
  const std::string begin = "lockstep replay ";
  std::error_code absent;
  if (!fs::is_regular_file(path, absent)) return "";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line) && line.starts_with("#");) {
    const std::size_t found = line.find(begin);
    if (found == std::string::npos) continue;
    const std::size_t token_end = line.find(' ', found + begin.size());
    return token_end == std::string::npos ? "" : line.substr(token_end + 1);
  }
  return "";
}

// The bytes stay where they are, and the file may lie elsewhere.
std::string text_for(const std::string& file, Shrunk shrunk) {
  Scenario::Data& data = shrunk.scenario.data;
  if (reads_bytes(data) && fs::path(data.path).is_relative()) {
    const fs::path folder = fs::absolute(file).parent_path();
    data.path =
        fs::proximate(fs::absolute(fs::path(shrunk.scenario.folder) / data.path), folder).string();
  }
  return shrunk_yaml(shrunk);
}

void check_request(const Options& options) {
  if (!options.has("output") && !options.has("promote")) {
    throw RequestError("say where the result goes: -o FILE, --promote, or both");
  }
}

// The first case that fails, shrunk; a RequestError if none does, GaveUp if none was judged in
// time. `failed_with`: options that the file names.
Shrunk shrink_first(const std::vector<Scenario>& cases, const ShrinkOptions& options,
                    const Stopwatch& watch, const std::string& failed_with) {
  Shrunk shrunk;
  for (const Scenario& one : cases) {
    const std::string lacks = options.runner ? "" : lacking(one, options.run.device);
    // A missing device is no failure to be shrunk.
    if (!lacks.empty()) throw NoDevice(one.name + ": " + lacks);
    ShrinkOptions how = options;
    how.seconds = options.seconds - watch.seconds();
    shrunk = shrink(one, how);
    if (!shrunk.result.token.empty()) return shrunk;
    if (shrunk.interrupted) throw Interrupted("interrupted by " + Interrupts::name());
    if (!shrunk.begun)
      throw GaveUp("the budget ended before " + one.name + " was judged: nothing was found");
  }
  if (shrunk.first.judge == JudgeKind::counters) {
    throw RequestError("nothing to shrink: " + shrunk.first.reason +
                       "; a smaller scenario has other counts");
  }
  throw RequestError("nothing to shrink: " + shrunk.first.name + " " +
                     to_text(shrunk.first.verdict) + " on " + options.run.device +
                     (shrunk.first.reason.empty() ? "" : ": " + shrunk.first.reason) +
                     (failed_with.empty() ? "" : "; the file says it failed with: " + failed_with));
}

// `promoted_to`: the folder of regressions, "" where the result is not promoted.
void say(const Shrunk& shrunk, const std::vector<std::string>& files,
         const std::string& promoted_to) {
  std::fputs(failure_block(shrunk.result, terminal_at(STDOUT_FILENO)).c_str(), stdout);
  for (const std::string& file : files) std::printf("wrote %s\n", file.c_str());
  if (!promoted_to.empty()) {
    std::puts(
        "It expects that everything holds: it fails until the bug is fixed, and guards the fix "
        "from then on.");
    std::puts(is_of_a_checkout(promoted_to)
                  ? "It is a test of ctest from the next build on: commit it."
                  : "This folder is of no checkout: copy the file to scenarios/regressions of "
                    "one, where it is a test of ctest from the next build on.");
  }
  if (!shrunk.finished && !shrunk.interrupted)
    std::puts("The budget ended first: it may get smaller with a larger --budget or --runs.");
}

}  // namespace

Options shrink_options() {
  Options options(
      "shrink", "TOKEN|FILE -o FILE",
      "Finds the smallest scenario that still fails for the same reason: same judge, same kind of "
      "tensor,\n"
      "same op. Writes it as YAML whose comments say how it failed and which settings may vary.",
      1);
  options.device().reports().planted();
  options.text("output", "write the smallest scenario to this file").short_form('o', "output");
  options.seconds("budget", "seconds for all of it; a run that takes longer is stopped", 60);
  options.number("runs", "scenarios that the search may run", 5000, 1);
  options.number("tries",
                 "schedules (sim) or repetitions (cuda) of a candidate where the failure is a race",
                 8, 1);
  options.seconds("timeout", "seconds after which the watchdog kills a scenario", 20);
  options.text("data-from",
               "folder that a token's data.path is relative to; this one if not given");
  options.flag(
      "promote",
      "also put it under scenarios/regressions of the current folder, else of the program's tree; "
      "in a checkout it is a test from the next build on");
  add_engine_options(options);
  options.example("lockstep shrink ls... -o small.yaml --budget 5m",
                  "the smallest scenario that fails as this token does");
  return options;
}

ExitStatus shrink_command(const Words& words) {
  Options options = shrink_options();
  if (!options.parse(words)) return ExitStatus::held;
  check_request(options);
  const Stopwatch watch;
  InterruptGuard guard;
  const InterruptGuard::AtEnd unless_there_is_more(guard, without_results(words));
  const CommandFiles files(options, {"output"});
  ShrinkOptions how;
  take_planted(options, how.run);
  std::vector<Scenario> cases = cases_of(options.word(), options.text("data-from"));
  for (const Scenario& one : cases) files.reads_data_of(one);
  const std::string folder = options.has("promote") ? regressions_folder() : "";
  if (!folder.empty()) require_place_for((fs::path(folder) / "promoted.yaml").string());
  std::optional<EngineShrink> engine;
  if (asks_for_engine(options)) {
    engine.emplace(options);
    cases = engine->projected(cases);
  } else {
    how.run.device = choose_device(options.text("device"));
  }
  how.seconds = options.seconds("budget");
  how.runs = options.number("runs");
  how.tries = static_cast<int>(options.number("tries"));
  how.timeout_s = options.seconds("timeout");
  how.name = [&](const CaseResult& result) { return free_name(folder, reason_name(result)); };
  if (engine) {
    how.runner = [&](const Scenario& one, const RunOptions&, double) { return engine->run(one); };
    how.confirmer = [&](const Scenario& one) { return engine->confirm(one); };
    how.name = EngineShrink::name_of;
    how.tries = kTriesOnAnEngine;
    how.documents_first = true;
  }
  Progress progress(options.has("quiet"));
  how.progress = [&](const std::string& line) { progress.show(line); };

  const Shrunk shrunk = shrink_first(cases, how, watch, options_in_comments(options.word()));
  if (engine) engine->close();
  guard.take_over();
  progress.clear();
  std::vector<std::string> written;
  if (options.has("output")) written.push_back(options.text("output"));
  if (!folder.empty())
    written.push_back((fs::path(folder) / (shrunk.scenario.name + ".yaml")).string());
  for (const std::string& file : written) write_file(file, text_for(file, shrunk));
  say(shrunk, written, folder);
  const std::vector<CaseResult> results{shrunk.result};
  boost::json::object run = run_to_json(results, shrunk.result.device, shrunk.seconds);
  if (shrunk.interrupted) run["interrupted"] = true;
  write_reports(options, junit(results, shrunk.interrupted), run);
  if (shrunk.interrupted) say_interrupted();
  return shrunk.finished ? ExitStatus::held : ExitStatus::gave_up;
}

}  // namespace lockstep
