#include "harness/cli/engine_commands.h"

#include <cstdio>

#include "harness/base/progress.h"
#include "harness/base/write_file.h"
#include "harness/cli/engine_session.h"
#include "harness/cli/write_reports.h"
#include "harness/foreign/coverage.h"
#include "harness/report/report.h"
#include "scenarios/io/reader.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

using foreign::EngineResult;

// Options that say how lockstep's own engine runs: another engine's are in its command.
constexpr const char* kOfOurEngine[] = {
    "with",       "device",  "cuda-object",    "plant",        "mutate-oracle", "mutate-checker",
    "schedules",  "edges",   "update-costs",   "no-fork",      "any-size",      "deadline",
    "skip-code",  "trace",   "schedule",       "jobs",         "memory-limit",  "reruns",
    "plant-case", "promote", "tries",          "offload-json", "schema",        "defaults",
    "rules",      "built",   "offload-matrix", "times",        "fail-fast",     "against",
    "coverage"};

void print_failures(const std::vector<EngineResult>& results) {
  for (const EngineResult& one : results) {
    if (!fails(one.result)) continue;
    std::fputs(failure_block(one.result).c_str(), stdout);
    std::fputs(case_text(one).c_str(), stdout);
    std::puts("");
  }
}

bool all_skipped(const std::vector<EngineResult>& results) {
  for (const EngineResult& one : results) {
    if (one.result.verdict != Verdict::skipped) return false;
  }
  return true;
}

EngineResult skipped(const PlannedCase& one, const std::string& why) {
  EngineResult result;
  result.result.name = one.scenario.name;
  result.result.file = one.file;
  result.result.numerics =
      one.scenario.numerics.size() == 1 ? to_text(one.scenario.numerics.front()) : std::string("-");
  result.result.verdict = Verdict::skipped;
  result.result.reason = why;
  return result;
}

ExitStatus reported(EngineSession& session, const Options& options, InterruptGuard& guard) {
  foreign::EngineReport& report = session.report();
  session.finish();
  guard.take_over();
  print_failures(report.results);
  if (!options.has("quiet")) std::fputs(foreign::table(report).c_str(), stdout);
  session.write_reports();
  if (report.interrupted) {
    say_interrupted();
    return interrupted_status(status_of(report));
  }
  for (const std::string& line : report.expected.unmet())
    std::fprintf(stderr, "lockstep: %s\n", line.c_str());
  if (all_skipped(report.results))
    throw WorldError("every scenario was skipped: nothing was verified");
  return status_of(report);
}

}  // namespace

void add_engine_options(Options& options) {
  options.text("engine",
               "judge this engine instead, by comparing it with itself; the command starts one "
               "rank of it (docs/engine-protocol.md)");
  options.text("relation", "with --engine: these relations alone, such as R2,R5 or R7:half=odd");
  options.text("expect-failures",
               "with --engine: the file of its known failures, instead of the one that it names");
}

bool asks_for_engine(const Options& options) {
  if (!options.has("engine")) {
    for (const char* name : {"relation", "expect-failures"}) {
      if (options.knows(name) && options.has(name))
        throw RequestError(std::string("--") + name + " needs --engine");
    }
    return false;
  }
  for (const char* name : kOfOurEngine) {
    if (!options.knows(name) || !options.has(name)) continue;
    throw RequestError(std::string("--") + name +
                       " is of lockstep's own engine: with --engine, leave it out");
  }
  return true;
}

ExitStatus verify_on_engine(const Options& options, const std::vector<PlannedCase>& cases,
                            InterruptGuard& guard) {
  EngineSession session(options);
  foreign::EngineReport& report = session.report();
  Progress progress(options.has("quiet"));
  try {
    for (const PlannedCase& one : cases) {
      if (one.decided) {
        const bool refused = one.scenario.expect.verdict == ExpectedVerdict::refused;
        report.results.push_back(
            skipped(one, refused ? "it is to be refused: nothing is asked of an engine"
                                 : one.decided->reason));
        continue;
      }
      if (session.is_repeated(one.scenario)) {
        report.results.push_back(skipped(one, "another case projects to the same scenario"));
        continue;
      }
      const EngineResult& result = session.judge(one.scenario, one.file);
      progress.show("[" + std::to_string(report.results.size()) + "/" +
                    std::to_string(cases.size()) + "] " + result.result.name + " " +
                    result.result.numerics + ": " + to_text(result.result.verdict));
    }
  } catch (const Interrupted&) {
    report.interrupted = true;
  }
  progress.clear();
  return reported(session, options, guard);
}

ExitStatus replay_on_engine(const Options& options, const std::vector<Scenario>& scenarios,
                            InterruptGuard& guard) {
  EngineSession session(options);
  foreign::EngineReport& report = session.report();
  for (const Scenario& one : scenarios) {
    const EngineResult& result = session.judge(one);
    if (fails(result.result) || options.has("quiet")) continue;
    std::printf("%s (%s) %s%s%s\n%s", result.result.name.c_str(), result.result.numerics.c_str(),
                to_text(result.result.verdict), result.result.reason.empty() ? "" : ": ",
                result.result.reason.c_str(), case_text(result).c_str());
  }
  session.finish();
  guard.take_over();
  print_failures(report.results);
  session.write_reports();
  if (all_skipped(report.results)) throw WorldError("the engine skipped it: nothing was judged");
  return status_of(report);
}

ExitStatus describe_engine(const Options& options, const std::vector<Scenario>& scenarios) {
  EngineSession session(options);
  const foreign::Hello& hello = session.hello();
  std::fputs(foreign::hello_text(hello).c_str(), stdout);
  boost::json::object whole = foreign::to_json(session.report());
  boost::json::array described;
  for (const Scenario& one : scenarios) {
    const foreign::Projection projection = foreign::project(one, hello.honours);
    std::printf("\n%s (%s)\n", one.name.c_str(), to_text(one.numerics.front()));
    boost::json::array changes;
    for (const foreign::ProjectedKey& key : projection.changes) {
      std::printf("  projected  %s: %s -> %s\n", key.key.c_str(), key.from.c_str(), key.to.c_str());
      changes.push_back({{"key", key.key}, {"from", key.from}, {"to", key.to}});
    }
    if (!projection.scenario) std::printf("  skipped: %s\n", projection.why_not.c_str());
    if (projection.scenario && projection.changes.empty()) std::puts("  nothing is projected");
    const std::vector<std::string> idle = projection.scenario
                                              ? session.host().why_not(*projection.scenario)
                                              : std::vector<std::string>();
    for (const std::string& line : idle) std::printf("  %s\n", line.c_str());
    described.push_back({{"name", one.name},
                         {"numerics", to_text(one.numerics.front())},
                         {"projected", std::move(changes)},
                         {"skipped", projection.why_not},
                         {"relations", boost::json::value_from(idle)}});
  }
  session.finish();
  whole["described"] = std::move(described);
  if (options.has("json")) write_file(options.text("json"), boost::json::serialize(whole) + "\n");
  return ExitStatus::held;
}

}  // namespace lockstep
