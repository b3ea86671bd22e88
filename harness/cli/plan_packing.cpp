// `lockstep plan-packing FILE`: capacities for the packs that a data set has.
#include <boost/json.hpp>
#include <cstdio>

#include "harness/base/options.h"
#include "harness/base/version.h"
#include "harness/base/write_file.h"
#include "harness/bench/model.h"
#include "harness/case/schedules.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/write_reports.h"
#include "harness/expect/expectations.h"
#include "harness/packing/measure.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/refusal.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

constexpr double kSlack = 0.005;  // The share of time that one more bucket must save.

bool is_scenario(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml");
}

Scenario read_model(const std::string& word) {
  if (const auto standard = standard_model(word)) return *standard;
  const ReadResult read = read_scenario_file(word);
  if (!read.ok()) throw refusal(read.errors);
  return read.scenario;
}

std::string bucket_text(const std::vector<std::int64_t>& buckets) {
  std::string text;
  for (const std::int64_t bucket : buckets)
    text += (text.empty() ? "" : ", ") + std::to_string(bucket);
  return "[" + text + "]";
}

// One forward and one backward graph of each region, slot and bucket; of a whole step, one each
// bucket.
std::int64_t graphs_of(const Scenario& model, const PackingPlan& plan) {
  const auto buckets = static_cast<std::int64_t>(plan.buckets.size());
  if (model.cuda_graph.impl == GraphImpl::full_iteration) return buckets;
  return 2 * graph_regions(model) * model.training.in_flight * buckets;
}

// Packs that one decision is for.
std::int64_t together(const Scenario& model) {
  const bool step = model.cuda_graph.impl == GraphImpl::full_iteration;
  return model.parallel.data * (step ? model.training.microbatches : 1);
}

void print_histogram(const PackHistogram& histogram) {
  std::printf("documents in a pack: %lld packs, P50 %lld, P90 %lld, P99 %lld, at most %lld\n\n",
              static_cast<long long>(packs(histogram)),
              static_cast<long long>(percentile(histogram, 0.5)),
              static_cast<long long>(percentile(histogram, 0.9)),
              static_cast<long long>(percentile(histogram, 0.99)),
              static_cast<long long>(histogram.rbegin()->first));
}

void print_costs(const PackCosts& costs, const DeviceInfo& device) {
  std::printf("a microbatch on %s\n", device.name.c_str());
  for (const auto& [capacity, seconds] : costs.replay) {
    std::printf("  replayed, capacity %6lld  %10.3f ms\n", static_cast<long long>(capacity),
                seconds * 1e3);
  }
  std::printf("  eager                     %10.3f ms\n", costs.eager * 1e3);
  if (device.kind == "sim") std::printf("  (of the simulated device: they say nothing of a GPU)\n");
}

void print_plans(const std::vector<PackingPlan>& plans, const Scenario& model) {
  std::printf("\n%10s  %10s  %12s  %8s  %s\n", "replayed", "eager", "ms expected", "graphs",
              "max_packed_seqs");
  for (const PackingPlan& plan : plans) {
    std::printf("%8.2f %%  %8.2f %%  %12.3f  %8lld  %s\n", 100 * plan.replayed,
                100 * (1 - plan.replayed), plan.seconds * 1e3,
                static_cast<long long>(graphs_of(model, plan)), bucket_text(plan.buckets).c_str());
  }
}

void print_proposal(const PackingPlan& plan) {
  if (plan.buckets.empty()) {
    std::printf("\nno graph saves time here: cuda_graph: {impl: none}\n");
  } else {
    std::printf("\ncuda_graph: {max_packed_seqs: %s}\n", bucket_text(plan.buckets).c_str());
  }
}

boost::json::object to_json(const PackingPlan& plan, const Scenario& model) {
  return {{"max_packed_seqs", boost::json::value_from(plan.buckets)},
          {"replayed", plan.replayed},
          {"seconds", plan.seconds},
          {"graphs", graphs_of(model, plan)}};
}

boost::json::object to_json(const PackCosts& costs) {
  boost::json::array replay;
  for (const auto& [capacity, seconds] : costs.replay) {
    replay.push_back(boost::json::object{{"capacity", capacity}, {"seconds", seconds}});
  }
  return {{"replay", std::move(replay)}, {"eager_seconds", costs.eager}};
}

}  // namespace

ExitStatus plan_packing_command(const Words& words) {
  Options options(
      "plan-packing", "FILE",
      "FILE is a scenario (*.yaml), whose training packs are counted, or a histogram: lines of "
      "\"documents\n"
      "packs\". A microbatch of the model is measured with graphs of several capacities and "
      "without; the\n"
      "proposal is the fewest buckets that cost at most half a percent more than the cheapest.",
      1);
  options.device().seconds("budget", "seconds for each measurement", 1);
  options.text("model",
               "a scenario file, H1 or S1; default: FILE, if it is one, or the default model");
  options.number("buckets", "at most that many (8 is the schema's limit)", 8, 1, 8);
  options.text("json", "write histogram, costs and plans to this file");
  if (!options.parse(words)) return ExitStatus::held;
  const CommandFiles files(options);
  const std::string& path = options.word();
  Scenario model;
  if (is_scenario(path)) model = read_model(path);
  const PackHistogram histogram = is_scenario(path) ? count_packs(model) : read_histogram(path);
  if (options.has("model")) files.reads("--model", options.text("model"));
  files.reads_data_of(model);
  if (options.has("model")) model = read_model(options.text("model"));
  model.numerics.resize(1);
  if (model.cuda_graph.impl == GraphImpl::none) {
    model.cuda_graph.impl = GraphImpl::partial;
    model.offload = {};  // Modules chosen without graphs may be illegal with them.
  }

  const std::string device = choose_device(options.text("device"));
  const DeviceInfo info = open_backend(device, {})->info();
  print_histogram(histogram);
  const PackCosts costs =
      measure_costs(model, percentile(histogram, 0.5), histogram.rbegin()->first, device,
                    options.seconds("budget"));
  print_costs(costs, info);
  const std::vector<PackingPlan> plans =
      cheapest_plans(histogram, costs, options.number("buckets"), together(model));
  print_plans(plans, model);
  const PackingPlan& best = proposed(plans, kSlack);
  print_proposal(best);
  if (!options.has("json")) return ExitStatus::held;

  boost::json::array counts, list;
  for (const auto& [documents, count] : histogram)
    counts.push_back(boost::json::array{documents, count});
  for (const PackingPlan& plan : plans) list.push_back(to_json(plan, model));
  const boost::json::object found{{"tool", "lockstep"},       {"version", version()},
                                  {"revision", revision()},   {"device", to_json(info)},
                                  {"histogram", counts},      {"costs", to_json(costs)},
                                  {"plans", std::move(list)}, {"proposed", to_json(best, model)}};
  write_file(options.text("json"), boost::json::serialize(found) + "\n");
  return ExitStatus::held;
}

}  // namespace lockstep
