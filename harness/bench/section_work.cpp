// Scenarios a second, ops by themselves, and steps.
#include <cstdio>

#include "harness/base/errors.h"
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

void print_kernel(const KernelTime& one) {
  const bool moves = one.work.bound == Bound::bandwidth;
  std::printf("%-60s %4d x %9.1f us  %8.1f %-7s", one.op.c_str(), one.times, one.seconds * 1e6,
              (moves ? one.work.bytes * 1e-9 : one.work.flop * 1e-12) / one.seconds,
              moves ? "GB/s" : "TFLOP/s");
  if (one.ceiling > 0) std::printf("  %5.1f %%", one.ceiling / one.seconds * 100);
  if (one.copy > 0) std::printf("  %5.1f %% of a copy of as much", one.copy / one.seconds * 100);
  std::printf("\n");
  std::fflush(stdout);
}

boost::json::array to_json(const std::vector<KernelTime>& times) {
  boost::json::array list;
  for (const KernelTime& one : times) {
    list.push_back(boost::json::object{{"op", one.op},
                                       {"times", one.times},
                                       {"seconds", one.seconds},
                                       {"ceiling_seconds", one.ceiling},
                                       {"copy_seconds", one.copy},
                                       {"flop", one.work.flop},
                                       {"bytes", one.work.bytes}});
  }
  return list;
}

void print_step(const StepTime& one, const std::string& device) {
  if (!one.not_run.empty()) {
    std::printf("%-16s not run: %s\n", one.mode.c_str(), one.not_run.c_str());
    return;
  }
  std::printf("%-16s %8.3f ms/step     (median of %lld, fastest %.3f, %s)\n", one.mode.c_str(),
              one.median * 1e3, static_cast<long long>(one.steps), one.fastest * 1e3,
              device.c_str());
  std::printf(
      "%-16s %8.0f tokens/s, %.1f TFLOP/s, utilisation %.1f %%; host %.3f ms in %.0f calls for "
      "%.0f ops; "
      "%.2f GiB; products: %d by a library, %d by our kernel (%lld calls)\n",
      "", one.tokens / one.median, one.flop / one.median * 1e-12,
      one.flop / one.median / kTensorPeak * 100, one.host * 1e3, one.submissions, one.ops,
      static_cast<double>(one.peak_bytes) / (1 << 30), one.plans.library, one.plans.own,
      static_cast<long long>(one.plans.own_calls));
  std::fflush(stdout);
}

boost::json::object to_json(const DeviceClocks& clocks) {
  return {{"sm_mhz", clocks.sm_mhz},
          {"memory_mhz", clocks.memory_mhz},
          {"power_watts", clocks.power_watts}};
}

}  // namespace

// Engine, oracle and comparison, in this process and on this core.
boost::json::object bench_scenarios(const Scenario& scenario, double budget) {
  std::int64_t done = 0;
  const Stopwatch watch;
  do {
    Scenario one = scenario;
    one.checker.schedule.seed += done;
    const CaseResult result = run_case(one, {});
    if (result.verdict != Verdict::holds) throw WorldError("bench: " + failure_block(result));
    ++done;
  } while (watch.seconds() < budget);
  const double seconds = watch.seconds(), rate = static_cast<double>(done) / seconds;
  std::printf("%-16s %8.2f scenarios/s  (%lld in %.2f s, sim, one core)\n", "verify", rate,
              static_cast<long long>(done), seconds);
  return {{"scenarios", done}, {"scenario_seconds", seconds}, {"scenarios_per_second", rate}};
}

boost::json::object bench_kernels(const Scenario& scenario, const std::string& device,
                                  const std::string& only) {
  const KernelTimes times = time_kernels(scenario, device, only, print_kernel);
  double sum = 0;
  for (const KernelTime& one : times.list) sum += one.times * one.seconds;
  std::printf("%-60s        %9.3f ms a step by itself", "all of these", sum * 1e3);
  if (times.copy_bytes_per_second > 0)
    std::printf("; copy %.1f GB/s", times.copy_bytes_per_second * 1e-9);
  std::printf("\n");
  if (!times.no_cudnn.empty())
    std::printf("attention has no ceiling: %s\n", times.no_cudnn.c_str());
  return {{"copy_bytes_per_second", times.copy_bytes_per_second},
          {"cudnn", to_json(times.cudnn)},
          {"no_cudnn", times.no_cudnn},
          {"kernels", to_json(times.list)}};
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
          {"products_by_library", one.plans.library},
          {"products_by_own_kernel", one.plans.own},
          {"calls_of_own_kernel", one.plans.own_calls},
          {"clocks", to_json(one.clocks)}};
}

boost::json::object bench_steps(const Scenario& scenario, const std::string& device, double budget,
                                const std::string& only) {
  boost::json::array list;
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    if (mode_name(impl).find(only) == std::string::npos) continue;
    const StepTime one = time_steps(scenario, impl, device, budget);
    print_step(one, device);
    list.push_back(to_json(one));
  }
  return {{"steps", std::move(list)}};
}

}  // namespace lockstep
