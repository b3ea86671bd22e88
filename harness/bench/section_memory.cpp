// Two sections of bench: device memory with and without cuda_graph.shared_memory; and in bf16 and
// in fp8, with what ranks gather, without a run.
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "engine/memory/memory_plan.h"
#include "harness/base/columns.h"
#include "harness/bench/device_bytes.h"
#include "harness/bench/sections.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/check.h"
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

// ---- Precisions ---------------------------------------------------------------------------------

constexpr std::int64_t kMostInFlight = 4;

struct Precision {
  const char* name;
  Scenario scenario;
};

Scenario in_fp8(Scenario s, std::vector<Fp8Layer> saved = {}) {
  s.numerics = {Numerics::fp8};
  for (const Fp8Layer layer : implied_original_inputs(s.model)) saved.push_back(layer);
  s.fp8.save_original_input = saved;
  return s;
}

std::vector<Precision> precisions(const Scenario& scenario) {
  Scenario bf16 = scenario;
  bf16.numerics = {Numerics::bf16};
  bf16.training.change_microbatches_at.clear();
  return {{"bf16", bf16},
          {"fp8", in_fp8(bf16)},
          {"fp8, attn_proj saved", in_fp8(bf16, {Fp8Layer::attn_proj})}};
}

bool can_run(const Scenario& s) { return check_legality(s).empty() && check_built(s).empty(); }

// The scenario's weights on the shards of two ranks.
std::int64_t gathered(Scenario s, bool codes) {
  s.parallel.data = 2;
  s.fsdp.strategy = Sharding::optim_grads;
  s.fp8.param_gather = codes;
  return gathered_bytes(s);
}

void show_gathers(const std::vector<Precision>& all, BenchRows& rows) {
  const auto add = [&](const char* name, std::int64_t bytes) {
    print_fitted(formatted("%-24s %12.1f MB\n", name, megabytes(bytes)));
    rows.add("/precisions/gathers", {{"gathers", name}, {"bytes", bytes}});
  };
  rows.begin("/precisions/gathers");
  print_fitted("weights that two ranks gather for a pass\n");
  add("bf16", gathered(all[0].scenario, false));
  add("fp8", gathered(all[1].scenario, false));
  add("fp8, param_gather", gathered(all[1].scenario, true));
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

void bench_precisions(const Scenario& scenario, const std::string& only, BenchRows& rows) {
  rows.begin("/precisions/rows");
  const Columns columns({{"precision", 22, "", 10},
                         {"in flight", 10},
                         {"memory MB", 12, "", 11},
                         {"more MB", 12, "", 11},
                         {"more B a row", 14}},
                        terminal_at(STDOUT_FILENO));
  print_fitted(columns.head());
  const std::vector<Precision> all = precisions(scenario);
  for (const Precision& one : all) {
    if (std::string(one.name).find(only) == std::string::npos) continue;
    std::optional<std::int64_t> before;
    for (std::int64_t in_flight = 1; in_flight <= kMostInFlight; ++in_flight) {
      Scenario s = one.scenario;
      s.training.in_flight = in_flight;
      if (in_flight > s.training.microbatches || !can_run(s)) break;
      const std::int64_t bytes = device_bytes(s), more = before ? bytes - *before : 0;
      print_fitted(
          columns.row({one.name, std::to_string(in_flight), formatted("%.1f", megabytes(bytes)),
                       before ? formatted("%.1f", megabytes(more)) : "",
                       before ? std::to_string(more / s.data.pack_length) : ""}));
      boost::json::object row{{"precision", one.name}, {"in_flight", in_flight}, {"bytes", bytes}};
      if (before) row["bytes_of_a_microbatch"] = more;
      rows.add("/precisions/rows", std::move(row));
      before = bytes;
    }
  }
  if (only.empty()) show_gathers(all, rows);
}

}  // namespace lockstep
