// Sections of bench: the cost of schedules and checking, and the calls of random cases.
#include <algorithm>
#include <cstdio>

#include "harness/bench/checker.h"
#include "harness/bench/dispatch.h"
#include "harness/bench/schedules.h"
#include "harness/bench/sections.h"
#include "harness/run/device_choice.h"
#include "harness/run/library.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

// Ranks over NCCL have GPUs of their own, and threads cannot meet inside of a graph.
bool must_be_processes(const Scenario& scenario) {
  const bool one_graph = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  return scenario.parallel.data > 1 &&
         (scenario.parallel.transport == Transport::nccl || one_graph);
}

}  // namespace

boost::json::object bench_schedules(double budget) {
  const Program program = bench_program();
  boost::json::array list;
  for (const bool pct : {false, true}) {
    const ScheduleRate rate = time_schedules(program, pct, budget);
    std::printf(
        "%-16s %8.0f schedules/s  (%lld in %.2f s by tags: 300 ops on 6 streams, %s, one core)\n",
        "schedules", static_cast<double>(rate.schedules) / rate.seconds,
        static_cast<long long>(rate.schedules), rate.seconds, rate.policy.c_str());
    std::fflush(stdout);
    list.push_back(boost::json::object{
        {"policy", rate.policy}, {"schedules", rate.schedules}, {"seconds", rate.seconds}});
  }
  return {{"schedules", std::move(list)}};
}

// Over the file that was given, or the library.
boost::json::object bench_checker(const Options& options, const std::string& device) {
  constexpr int kRuns = 5;
  const std::vector<std::string> files = options.words().empty()
                                             ? scenario_files(library_folder())
                                             : std::vector<std::string>{options.words().front()};
  boost::json::array list;
  double without = 0, with = 0, most = 0;
  for (const std::string& file : files) {
    const ReadResult read = read_scenario_file(file);
    if (!read.ok() || !check_built(read.scenario).empty()) continue;
    if (must_be_processes(read.scenario) || !lacking(read.scenario, device).empty()) continue;
    const CheckerCost one = time_checker(read.scenario, device, kRuns);
    without += one.without;
    with += one.with;
    most = std::max(most, one.with / one.without);
    list.push_back(boost::json::object{
        {"scenario", one.scenario}, {"without", one.without}, {"with", one.with}});
  }
  if (list.empty() && options.text("section") == "checker")
    throw RequestError("--section checker: no scenario that this build can run in one process");
  if (list.empty()) return {};
  std::printf(
      "%-16s %8.2f times       (%zu scenarios, medians of %d: %.3f s with it, %.3f s without, at "
      "most %.2f, %s)\n",
      "checker", with / without, list.size(), kRuns, with, without, most, device.c_str());
  return {{"checker", {{"ratio", with / without}, {"most", most}, {"scenarios", std::move(list)}}}};
}

boost::json::object bench_dispatch(std::int64_t cases) {
  boost::json::array list;
  std::printf("%-20s %8s %8s %8s   (calls of a case, of %lld random ones)\n", "at the device door",
              "median", "p95", "most", static_cast<long long>(cases));
  for (const DispatchCount& one : count_dispatch(1, cases)) {
    std::printf("%-20s %8lld %8lld %8lld\n", one.call.c_str(), static_cast<long long>(one.median),
                static_cast<long long>(one.p95), static_cast<long long>(one.most));
    list.push_back(boost::json::object{
        {"call", one.call}, {"median", one.median}, {"p95", one.p95}, {"most", one.most}});
  }
  return {{"door", {{"cases", cases}, {"calls", std::move(list)}}}};
}

}  // namespace lockstep
