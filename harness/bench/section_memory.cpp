// A section of bench: device memory with and without cuda_graph.shared_memory.
#include <unistd.h>

#include <algorithm>
#include <set>

#include "engine/memory/memory_plan.h"
#include "harness/base/columns.h"
#include "harness/bench/sections.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

constexpr std::int64_t kInFlight[] = {1, 2, 3};

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

std::string row_of(const Columns& columns, const std::string& name, std::int64_t in_flight,
                   const StepTime& time, const MemoryPlan& plan) {
  if (!time.not_run.empty()) return columns.row({name}, "not run: " + time.not_run);
  return columns.row({name, std::to_string(in_flight), formatted("%.3f", time.median * 1e3),
                      formatted("%.1f", megabytes(time.peak_bytes)),
                      formatted("%.1f", megabytes(time.driver_bytes)),
                      formatted("%.1f", megabytes(plan.bytes)),
                      formatted("%.1f", megabytes(plan.peak_bytes))});
}

}  // namespace

// Tensors side by side, and in shared memory, with more and more microbatches in flight.
void bench_memory(const Scenario& scenario, const std::string& device, double budget,
                  const std::string& only, BenchRows& rows) {
  rows.begin("/memory/rows");
  const Columns columns({{"memory", 16, "", 10},
                         {"in flight", 10},
                         {"ms/step", 12, "", 11},
                         {"memory MB", 12, "", 11},
                         {"driver MB", 12, "", 11},
                         {"activation MB", 14},
                         {"live MB", 12, "", 11}},
                        terminal_at(STDOUT_FILENO));
  print_fitted(columns.head());
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
      print_fitted(row_of(columns, name, in_flight, time, plan));
      boost::json::object one = to_json(time);
      one["memory"] = name;
      one["in_flight"] = in_flight;
      one["activation_bytes"] = plan.bytes;
      one["largest_live_bytes"] = plan.peak_bytes;
      rows.add("/memory/rows", std::move(one));
    }
  }
  if (device == "sim") print_fitted("(times of the simulated device: they say nothing of a GPU)\n");
}

}  // namespace lockstep
