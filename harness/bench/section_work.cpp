// Scenarios a second, ops by themselves, and steps.
#include <unistd.h>

#include "harness/base/columns.h"
#include "harness/base/errors.h"
#include "harness/base/interrupts.h"
#include "harness/base/stopwatch.h"
#include "harness/bench/kernels.h"
#include "harness/bench/sections.h"
#include "harness/judge/runner.h"
#include "harness/report/report.h"
#include "harness/run/run_case.h"

namespace lockstep {
namespace {

// Dense bf16 of an H200, by its maker: what utilisation is a share of.
constexpr double kTensorPeak = 989e12;

constexpr std::size_t kModeWidth = 17;  // With the blank behind it.

Columns kernel_columns() {
  // Name, number, time, rate and the share of the ceiling.
  return {{{"", 60, "", 30}, {"", 7}, {"", 13}, {"", 18}, {"", 9}}, terminal_at(STDOUT_FILENO)};
}

void print_kernel(const KernelTime& one) {
  const bool moves = one.work.bound == Bound::bandwidth;
  std::vector<std::string> cells{
      one.op, formatted("%d x", one.times), formatted("%.1f us", one.seconds * 1e6),
      formatted("%8.1f %-7s", (moves ? one.work.bytes * 1e-9 : one.work.flop * 1e-12) / one.seconds,
                moves ? "GB/s" : "TFLOP/s")};
  if (one.ceiling > 0) cells.push_back(formatted("%.1f %%", one.ceiling / one.seconds * 100));
  std::string beside;
  if (one.copy > 0)
    beside = formatted("%5.1f %% of a copy of as much", one.copy / one.seconds * 100);
  if (one.own > 0) beside = formatted("%5.1f %% our own kernel", one.ceiling / one.own * 100);
  print_fitted(kernel_columns().row(cells, beside));
}

boost::json::object to_json(const KernelTime& one) {
  return {{"op", one.op},
          {"times", one.times},
          {"seconds", one.seconds},
          {"ceiling_seconds", one.ceiling},
          {"copy_seconds", one.copy},
          {"own_kernel_seconds", one.own},
          {"flop", one.work.flop},
          {"bytes", one.work.bytes}};
}

boost::json::array to_json(const std::vector<KernelTime>& times) {
  boost::json::array list;
  for (const KernelTime& one : times) list.push_back(to_json(one));
  return list;
}

void print_step(const StepTime& one, const std::string& device) {
  if (!one.not_run.empty()) {
    print_fitted(formatted("%-16s not run: %s\n", one.mode.c_str(), one.not_run.c_str()),
                 kModeWidth);
    return;
  }
  print_fitted(formatted("%-16s %8.3f ms/step     (median of %lld, fastest %.3f, %s)\n",
                         one.mode.c_str(), one.median * 1e3, static_cast<long long>(one.steps),
                         one.fastest * 1e3, device.c_str()),
               kModeWidth);
  print_fitted(
      formatted("%-16s %8.0f tokens/s, %.1f TFLOP/s, utilisation %.1f %%; host %.3f ms in %.0f "
                "calls for %.0f ops; %.2f GiB; products: %d by a library, %d by our kernel (%lld "
                "calls)\n",
                "", one.tokens / one.median, one.flop / one.median * 1e-12,
                one.flop / one.median / kTensorPeak * 100, one.host * 1e3, one.submissions, one.ops,
                static_cast<double>(one.peak_bytes) / (1 << 30), one.plans.library, one.plans.own,
                static_cast<long long>(one.plans.own_calls)));
}

boost::json::object to_json(const DeviceClocks& clocks) {
  return {{"sm_mhz", clocks.sm_mhz},
          {"memory_mhz", clocks.memory_mhz},
          {"power_watts", clocks.power_watts}};
}

}  // namespace

// Engine, oracle and comparison, in this process and on this core.
void bench_scenarios(const Scenario& scenario, double budget, BenchRows& rows) {
  std::int64_t done = 0;
  const Stopwatch watch;
  do {
    Scenario one = scenario;
    one.checker.schedule.seed += done;
    const CaseResult result = run_case(one, {});
    if (result.verdict != Verdict::holds) throw WorldError("bench: " + failure_block(result));
    ++done;
  } while (watch.seconds() < budget && !Interrupts::came());
  const double seconds = watch.seconds(), rate = static_cast<double>(done) / seconds;
  print_fitted(formatted("%-16s %8.2f scenarios/s  (%lld in %.2f s, sim, one core)\n", "verify",
                         rate, static_cast<long long>(done), seconds),
               kModeWidth);
  rows.set("/scenarios", done);
  rows.set("/scenario_seconds", seconds);
  rows.set("/scenarios_per_second", rate);
}

void bench_kernels(const Scenario& scenario, const std::string& device, const std::string& only,
                   BenchRows& rows) {
  rows.begin("/kernels");
  const KernelTimes times = time_kernels(scenario, device, only, [&](const KernelTime& one) {
    print_kernel(one);
    const bool cudnn = one.op.starts_with("cudnn");
    rows.add(cudnn ? "/cudnn" : "/kernels", to_json(one));
  });
  double sum = 0;
  for (const KernelTime& one : times.list) sum += one.times * one.seconds;
  std::string line = formatted("%-60s        %9.3f ms a step by itself", "all of these", sum * 1e3);
  if (times.copy_bytes_per_second > 0)
    line += formatted("; copy %.1f GB/s", times.copy_bytes_per_second * 1e-9);
  print_fitted(line + "\n");
  if (!times.no_cudnn.empty()) print_fitted("attention has no ceiling: " + times.no_cudnn + "\n");
  rows.set("/copy_bytes_per_second", times.copy_bytes_per_second);
  rows.set("/cudnn", to_json(times.cudnn));
  rows.set("/no_cudnn", boost::json::string(times.no_cudnn));
  rows.set("/kernels", to_json(times.list));  // By their share of the step.
}

boost::json::object to_json(const StepTime& one) {
  if (!one.not_run.empty()) return {{"mode", one.mode}, {"not_run", one.not_run}};
  return {{"mode", one.mode},
          {"steps", one.steps},
          {"median_seconds", one.median},
          {"fastest_seconds", one.fastest},
          {"host_seconds", one.host},
          {"calls", one.submissions},
          {"ops", one.ops},
          {"tokens", one.tokens},
          {"tokens_per_second", one.tokens / one.median},
          {"flop", one.flop},
          {"utilisation", one.flop / one.median / kTensorPeak},
          {"peak_bytes", one.peak_bytes},
          {"driver_bytes", one.driver_bytes},
          {"products_by_library", one.plans.library},
          {"products_by_own_kernel", one.plans.own},
          {"calls_of_own_kernel", one.plans.own_calls},
          {"clocks", to_json(one.clocks)}};
}

void bench_steps(const Scenario& scenario, const std::string& device, double budget,
                 const std::string& only, BenchRows& rows) {
  rows.begin("/steps");
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    if (mode_name(impl).find(only) == std::string::npos) continue;
    const StepTime one = time_steps(scenario, impl, device, budget);
    print_step(one, device);
    rows.add("/steps", to_json(one));
  }
}

}  // namespace lockstep
