// `lockstep bench [FILE]`: scenarios a second on one core, and the time of a step with and without graphs.
#include <algorithm>
#include <cstdio>

#include "engine/trainer.h"
#include "harness/commands.h"
#include "harness/device_choice.h"
#include "harness/options.h"
#include "harness/report.h"
#include "harness/result_json.h"
#include "harness/runner.h"
#include "harness/schedules.h"
#include "harness/stopwatch.h"
#include "harness/version.h"
#include "harness/write_file.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

constexpr int kWarmSteps = 3;  // After the scenario's own warm-up: captures and first touches are over.
constexpr int kFewestSteps = 5;

Scenario scenario_of(const Options& options) {
  Scenario scenario;
  scenario.name = "bench";
  if (!options.words().empty()) {
    const ReadResult read = read_scenario_file(options.words().front());
    if (!read.ok()) throw RequestError("refused\n" + read.errors.front().text());
    scenario = read.scenario;
  }
  scenario.numerics.resize(1);
  return scenario;
}

struct Throughput {
  std::int64_t scenarios = 0;
  double seconds = 0;
};

// Engine, oracle and comparison, in this process and on this core.
Throughput scenarios_within(const Scenario& scenario, double budget) {
  Throughput done;
  const Stopwatch watch;
  do {
    Scenario one = scenario;
    one.checker.schedule.seed += done.scenarios;
    const CaseResult result = run_case(one, {});
    if (result.verdict != Verdict::holds) throw WorldError("bench: " + failure_block(result));
    ++done.scenarios;
    done.seconds = watch.seconds();
  } while (done.seconds < budget);
  return done;
}

struct StepTime {
  std::string mode;
  std::int64_t steps = 0;
  double median = 0, fastest = 0;  // Seconds.
  std::string not_run;             // Why there is no time.
};

StepTime step_time(Scenario scenario, GraphImpl impl, const std::string& device_kind, double budget) {
  StepTime result{.mode = impl == GraphImpl::none ? "eager" : to_text(impl), .not_run = ""};
  scenario.cuda_graph.impl = impl;
  if (impl != GraphImpl::partial) scenario.cuda_graph.modules.clear();
  for (const auto& errors : {check_legality(scenario), check_built(scenario)}) {
    if (errors.empty()) continue;
    result.not_run = errors.front().text();
    return result;
  }
  const auto data = open_data(scenario);
  Device device(open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed)));
  Trainer trainer(device, scenario, *data, {.dry_run_ledger = false});
  for (std::int64_t i = 0; i < scenario.cuda_graph.warmup_steps + kWarmSteps; ++i) trainer.step();
  std::vector<double> times;
  const Stopwatch all;
  while (static_cast<int>(times.size()) < kFewestSteps || all.seconds() < budget) {
    const Stopwatch one;
    trainer.step();
    times.push_back(one.seconds());
  }
  std::sort(times.begin(), times.end());
  result.steps = static_cast<std::int64_t>(times.size());
  result.median = times[times.size() / 2];
  result.fastest = times.front();
  return result;
}

boost::json::object to_json(const Throughput& rate, const std::vector<StepTime>& steps, const DeviceInfo& device) {
  boost::json::array list;
  for (const StepTime& one : steps) {
    boost::json::object entry{{"mode", one.mode}};
    if (one.not_run.empty()) {
      entry["steps"] = one.steps;
      entry["median_seconds"] = one.median;
      entry["fastest_seconds"] = one.fastest;
    } else {
      entry["not_run"] = one.not_run;
    }
    list.push_back(std::move(entry));
  }
  return {{"tool", "lockstep"},
          {"version", version()},
          {"revision", revision()},
          {"device", to_json(device)},
          {"scenarios", rate.scenarios},
          {"scenario_seconds", rate.seconds},
          {"scenarios_per_second", static_cast<double>(rate.scenarios) / rate.seconds},
          {"steps", std::move(list)}};
}

}  // namespace

ExitStatus bench_command(const Words& words) {
  Options options("bench", "[FILE]",
                  "Scenarios a second (engine, oracle and comparison on one core of the simulated device), and the\n"
                  "median time of a step eager, with partial graphs and with one graph of the whole step.",
                  1);
  options.device().seconds("budget", "seconds for each of the four measurements", 5);
  options.text("json", "write the numbers to this file");
  if (!options.parse(words)) return ExitStatus::held;
  const Scenario scenario = scenario_of(options);
  const std::string device = choose_device(options.text("device"));
  const double budget = options.seconds("budget");

  const Throughput rate = scenarios_within(scenario, budget);
  std::printf("%-16s %8.2f scenarios/s  (%lld in %.2f s, sim, one core)\n", "verify",
              static_cast<double>(rate.scenarios) / rate.seconds, static_cast<long long>(rate.scenarios), rate.seconds);
  std::vector<StepTime> steps;
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    steps.push_back(step_time(scenario, impl, device, budget));
    const StepTime& one = steps.back();
    if (one.not_run.empty()) {
      std::printf("%-16s %8.3f ms/step     (median of %lld, fastest %.3f, %s)\n", one.mode.c_str(), one.median * 1e3,
                  static_cast<long long>(one.steps), one.fastest * 1e3, device.c_str());
    } else {
      std::printf("%-16s not run: %s\n", one.mode.c_str(), one.not_run.c_str());
    }
    std::fflush(stdout);
  }
  if (options.has("json")) {
    const DeviceInfo info = open_backend(device, {})->info();
    write_file(options.text("json"), boost::json::serialize(to_json(rate, steps, info)) + "\n");
  }
  return ExitStatus::held;
}

}  // namespace lockstep
