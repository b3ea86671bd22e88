// A section of bench: device memory with and without cuda_graph.shared_memory.
#include <algorithm>
#include <cstdio>
#include <set>

#include "engine/memory/memory_plan.h"
#include "harness/bench/sections.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

constexpr std::int64_t kInFlight[] = {1, 2, 3};

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void print_row(const std::string& name, std::int64_t in_flight, const StepTime& time,
               const MemoryPlan& plan) {
  if (!time.not_run.empty()) {
    std::printf("%-16s not run: %s\n", name.c_str(), time.not_run.c_str());
    return;
  }
  std::printf("%-16s %9lld %11.3f %11.1f %11.1f %13.1f %11.1f\n", name.c_str(),
              static_cast<long long>(in_flight), time.median * 1e3, megabytes(time.peak_bytes),
              megabytes(time.driver_bytes), megabytes(plan.bytes), megabytes(plan.peak_bytes));
  std::fflush(stdout);
}

}  // namespace

// Tensors side by side, and in shared memory, with more and more microbatches in flight.
void bench_memory(const Scenario& scenario, const std::string& device, double budget,
                  const std::string& only, BenchRows& rows) {
  rows.begin("/memory/rows");
  std::printf("%-16s %9s %11s %11s %11s %13s %11s\n", "memory", "in flight", "ms/step", "memory MB",
              "driver MB", "activation MB", "live MB");
  for (const std::int64_t in_flight : kInFlight) {
    if (in_flight > scenario.training.microbatches) continue;
    for (const bool shared : {false, true}) {
      Scenario s = scenario;
      s.training.in_flight = in_flight;
      s.training.change_microbatches_at.clear();
      s.cuda_graph.impl = GraphImpl::partial;
      s.cuda_graph.shared_memory = shared;
      const std::string name = shared ? "shared" : "separate";
      if (name.find(only) == std::string::npos) continue;
      MemoryPlan plan = plan_memory(s);
      if (!shared) plan.bytes = plan.unshared;
      const StepTime time = time_steps(s, GraphImpl::partial, device, budget);
      print_row(name, in_flight, time, plan);
      boost::json::object one = to_json(time);
      one["memory"] = name;
      one["in_flight"] = in_flight;
      one["activation_bytes"] = plan.bytes;
      one["largest_live_bytes"] = plan.peak_bytes;
      rows.add("/memory/rows", std::move(one));
    }
  }
  if (device == "sim") std::printf("(times of the simulated device: they say nothing of a GPU)\n");
}

}  // namespace lockstep
