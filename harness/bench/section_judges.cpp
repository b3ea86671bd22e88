// Sections of bench: the cost of schedules and checking, and the calls of random cases.
#include <unistd.h>

#include <algorithm>

#include "harness/base/columns.h"
#include "harness/bench/checker.h"
#include "harness/bench/dispatch.h"
#include "harness/bench/schedules.h"
#include "harness/bench/sections.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

constexpr std::size_t kNameWidth = 17;  // With the blank behind it.

// Ranks over NCCL have GPUs of their own, and threads cannot meet inside of a graph.
bool must_be_processes(const Scenario& scenario) {
  return captures_calls(scenario) ||
         (ranks_of_run(scenario) > 1 && scenario.parallel.transport == Transport::nccl);
}

}  // namespace

void bench_schedules(double budget, BenchRows& rows) {
  const Program program = bench_program();
  rows.begin("/schedules");
  for (const bool pct : {false, true}) {
    const ScheduleRate rate = time_schedules(program, pct, budget);
    print_fitted(
        formatted("%-16s %8.0f schedules/s  (%lld in %.2f s by tags: 300 ops on 6 streams, %s, one "
                  "core)\n",
                  "schedules", static_cast<double>(rate.schedules) / rate.seconds,
                  static_cast<long long>(rate.schedules), rate.seconds, rate.policy.c_str()),
        kNameWidth);
    rows.add("/schedules",
             {{"policy", rate.policy}, {"schedules", rate.schedules}, {"seconds", rate.seconds}});
  }
}

// Over the file that was given, or the library.
void bench_checker(const Options& options, const std::string& device, BenchRows& rows) {
  constexpr int kRuns = 5;
  const std::vector<std::string> files = options.words().empty()
                                             ? scenario_files(library_folder())
                                             : std::vector<std::string>{options.words().front()};
  std::size_t measured = 0;
  double without = 0, with = 0, most = 0;
  for (const std::string& file : files) {
    const ReadResult read = read_scenario_file(file);
    if (!read.ok() || !check_built(read.scenario).empty()) continue;
    if (must_be_processes(read.scenario) || !lacking(read.scenario, device).empty()) continue;
    const CheckerCost one = time_checker(read.scenario, device, kRuns);
    without += one.without;
    with += one.with;
    most = std::max(most, one.with / one.without);
    ++measured;
    rows.add("/checker/scenarios",
             {{"scenario", one.scenario}, {"without", one.without}, {"with", one.with}});
  }
  if (measured == 0 && options.text("section") == "checker")
    throw RequestError("--section checker: no scenario that this build can run in one process");
  if (measured == 0) return;
  print_fitted(
      formatted("%-16s %8.2f times       (%zu scenarios, medians of %d: %.3f s with it, %.3f s "
                "without, at most %.2f, %s)\n",
                "checker", with / without, measured, kRuns, with, without, most, device.c_str()),
      kNameWidth);
  rows.set("/checker/ratio", with / without);
  rows.set("/checker/most", most);
}

void bench_dispatch(std::int64_t cases, BenchRows& rows) {
  rows.set("/door/cases", cases);
  rows.begin("/door/calls");
  const Columns columns({{"at the device door", 20}, {"median", 9}, {"p95", 9}, {"most", 9}},
                        terminal_at(STDOUT_FILENO));
  print_fitted(columns.head(
      formatted(" (calls of a case, of %lld random ones)", static_cast<long long>(cases))));
  for (const DispatchCount& one : count_dispatch(1, cases)) {
    print_fitted(columns.row(
        {one.call, std::to_string(one.median), std::to_string(one.p95), std::to_string(one.most)}));
    rows.add("/door/calls",
             {{"call", one.call}, {"median", one.median}, {"p95", one.p95}, {"most", one.most}});
  }
}

}  // namespace lockstep
