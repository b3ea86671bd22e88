// `lockstep plan-packing FILE`: capacities for the packs that a data set has.
#include <unistd.h>

#include <boost/json.hpp>
#include <optional>

#include "harness/base/columns.h"
#include "harness/base/options.h"
#include "harness/base/version.h"
#include "harness/bench/model.h"
#include "harness/case/schedules.h"
#include "harness/cli/command_files.h"
#include "harness/cli/commands.h"
#include "harness/cli/write_reports.h"
#include "harness/expect/expectations.h"
#include "harness/packing/capacities.h"
#include "harness/packing/measure.h"
#include "harness/page/packing_page.h"
#include "harness/report/result_json.h"
#include "harness/run/device_choice.h"
#include "harness/run/refusal.h"
#include "scenarios/io/reader.h"
#include "scenarios/syntax/schema_text.h"

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
  return 2 * slots_of_regions(model) * buckets;
}

// Packs that one decision is for.
std::int64_t together(const Scenario& model) {
  const bool step = model.cuda_graph.impl == GraphImpl::full_iteration;
  return model.parallel.data * (step ? model.training.microbatches : 1);
}

void print_histogram(const PackHistogram& histogram) {
  print_fitted(formatted(
      "documents in a pack: %lld packs, P50 %lld, P90 %lld, P99 %lld, at most %lld\n\n",
      static_cast<long long>(packs(histogram)), static_cast<long long>(percentile(histogram, 0.5)),
      static_cast<long long>(percentile(histogram, 0.9)),
      static_cast<long long>(percentile(histogram, 0.99)),
      static_cast<long long>(histogram.rbegin()->first)));
}

// A capacity that was asked about, and what it would do.
struct Asked {
  NamedCapacity named;
  CapacityUse use;  // Without costs only `replayed`.
  Fallbacks fallbacks;
};

// The reasons are known of a scenario's own documents, since those know their lengths.
std::vector<Asked> ask(const std::vector<NamedCapacity>& capacities, const PackHistogram& histogram,
                       const PackCosts* costs, const Scenario* source, std::int64_t together) {
  std::vector<Asked> list;
  for (const NamedCapacity& one : capacities) {
    Asked asked{one, {.replayed = share_replayed(histogram, one.capacity, together)}, {}};
    if (costs != nullptr) asked.use = use_of(histogram, *costs, one.capacity, together);
    if (source != nullptr) {
      Scenario with = *source;
      with.cuda_graph.max_packed_seqs = {one.capacity};
      asked.fallbacks = expected_fallbacks(with);
    }
    list.push_back(std::move(asked));
  }
  return list;
}

void print_asked(const std::vector<Asked>& list, bool timed, const Scenario* source) {
  std::vector<Column> heads{{"at", 8}, {"capacity", 9}, {"replayed", 12, "", 11}};
  if (source != nullptr) {
    const bool full = source->cuda_graph.impl == GraphImpl::full_iteration;
    heads.push_back({"too many documents", 20, "too many", 10});
    heads.push_back({"document too long", 20, "too long", 10});
    heads.push_back({full ? "of steps" : "of microbatches", 17, full ? "steps" : "packs", 10});
  }
  if (timed) {
    heads.push_back({"ms expected", 14, "expected", 10});
    heads.push_back({"ms of padding", 20, "padding ms", 12});
  }
  const Columns columns(std::move(heads), terminal_at(STDOUT_FILENO));
  print_fitted(columns.head());
  for (const Asked& one : list) {
    std::vector<std::string> cells{one.named.name, std::to_string(one.named.capacity),
                                   formatted("%.2f %%", 100 * one.use.replayed)};
    if (source != nullptr) {
      for (const std::int64_t count :
           {one.fallbacks.documents, one.fallbacks.length, one.fallbacks.decisions})
        cells.push_back(std::to_string(count));
    }
    if (timed) {
      const double tightest = one.use.replayed > 0 ? one.use.padding : 0;
      cells.push_back(formatted("%.3f", one.use.seconds * 1e3));
      cells.push_back(formatted("%.3f", tightest * 1e3));
    }
    print_fitted(columns.row(cells));
  }
}

void print_costs(const PackCosts& costs, const DeviceInfo& device) {
  print_fitted("a microbatch on " + device.name + "\n");
  for (const auto& [capacity, seconds] : costs.replay) {
    print_fitted(formatted("  replayed, capacity %6lld  %10.3f ms\n",
                           static_cast<long long>(capacity), seconds * 1e3));
  }
  print_fitted(formatted("  eager                     %10.3f ms\n\n", costs.eager * 1e3));
}

void print_plans(const std::vector<PackingPlan>& plans, const Scenario& model) {
  const Columns columns({{"  replayed", 10}, {"eager", 12}, {"ms expected", 14}, {"graphs", 10}},
                        terminal_at(STDOUT_FILENO));
  print_fitted("\n" + columns.head("max_packed_seqs"));
  for (const PackingPlan& plan : plans) {
    print_fitted(
        columns.row({formatted("%8.2f %%", 100 * plan.replayed),
                     formatted("%.2f %%", 100 * (1 - plan.replayed)),
                     formatted("%.3f", plan.seconds * 1e3), std::to_string(graphs_of(model, plan))},
                    bucket_text(plan.buckets)));
  }
}

void print_proposal(const PackingPlan& plan) {
  print_fitted(plan.buckets.empty()
                   ? "\nno graph saves time here: cuda_graph: {impl: none}\n"
                   : "\ncuda_graph: {max_packed_seqs: " + bucket_text(plan.buckets) + "}\n");
}

// Without times, two capacities can be told by the packs that they cover.
void print_coverage(const PackHistogram& histogram, std::int64_t together) {
  std::string shares;
  std::vector<std::int64_t> buckets;
  for (const int percent : {90, 99}) {
    const std::int64_t capacity = std::max<std::int64_t>(1, percentile(histogram, percent / 100.0));
    shares += formatted("%s P%d -> %lld (%.2f %%)", shares.empty() ? "" : ",", percent,
                        static_cast<long long>(capacity),
                        100 * share_replayed(histogram, capacity, together));
    if (buckets.empty() || capacity > buckets.back()) buckets.push_back(capacity);
  }
  print_fitted("by coverage alone:" + shares +
               "\n  cuda_graph: {max_packed_seqs: " + bucket_text(buckets) + "}\n");
}

boost::json::object to_json(const PackingPlan& plan, const Scenario& model) {
  return {{"max_packed_seqs", boost::json::value_from(plan.buckets)},
          {"replayed", plan.replayed},
          {"seconds", plan.seconds},
          {"graphs", graphs_of(model, plan)}};
}

boost::json::array to_json(const std::vector<Asked>& list, bool timed, bool reasons) {
  boost::json::array all;
  for (const Asked& one : list) {
    boost::json::object row{
        {"at", one.named.name}, {"capacity", one.named.capacity}, {"replayed", one.use.replayed}};
    if (timed) {
      row["seconds"] = one.use.seconds;
      row["padding_seconds"] = one.use.padding;
    }
    if (reasons) {
      row["decisions"] = one.fallbacks.decisions;
      row["fallbacks_documents"] = one.fallbacks.documents;
      row["fallbacks_length"] = one.fallbacks.length;
    }
    all.push_back(std::move(row));
  }
  return all;
}

boost::json::object to_json(const PackCosts& costs) {
  boost::json::array replay;
  for (const auto& [capacity, seconds] : costs.replay) {
    replay.push_back(boost::json::object{{"capacity", capacity}, {"seconds", seconds}});
  }
  return {{"replay", std::move(replay)}, {"eager_seconds", costs.eager}};
}

// Share and cost of one graph, for each capacity that packs have; at most so many of them.
boost::json::array curve(const PackHistogram& histogram, const PackCosts& costs,
                         std::int64_t together) {
  constexpr std::size_t kMost = 200;
  const std::size_t every = histogram.size() / kMost + 1;
  boost::json::array points;
  std::size_t number = 0;
  for (const auto& [capacity, count] : histogram) {
    if (number++ % every != 0 && number != histogram.size()) continue;
    const CapacityUse use = use_of(histogram, costs, capacity, together);
    points.push_back(
        {{"capacity", capacity}, {"replayed", use.replayed}, {"seconds", use.seconds}});
  }
  return points;
}

// The histogram, and where it comes from.
struct Packs {
  PackHistogram histogram;
  std::optional<Scenario> source;  // Absent for a file that is a histogram itself.
};

Packs read_packs(const std::string& path) {
  if (!is_scenario(path)) return {read_histogram(path), {}};
  const Scenario scenario = read_model(path);
  return {count_packs(scenario), scenario};
}

// A model that can be measured: one precision, with graphs.
Scenario measurable(Scenario model) {
  model.numerics.resize(1);
  if (model.cuda_graph.impl == GraphImpl::none) {
    model.cuda_graph.impl = GraphImpl::partial;
    model.offload = {};  // Modules chosen without graphs may be illegal with them.
  }
  return model;
}

ExitStatus plan(const Options& options, const Packs& packs, const Scenario& model) {
  const std::string device = choose_device(options.text("device"));
  const DeviceInfo info = open_backend(device, {})->info();
  const PackHistogram& histogram = packs.histogram;
  print_histogram(histogram);
  const auto capacities = named_capacities(options.text("at"), histogram);
  const Scenario source = packs.source ? measurable(*packs.source) : Scenario();
  const Scenario* const reasons = packs.source ? &source : nullptr;
  // Times of a simulation are for programs that read the numbers, and are marked.
  const bool simulated = info.kind == "sim";
  std::optional<PackCosts> costs;
  const bool reports = options.has("json") || options.has("html");
  if (!simulated || reports) {
    costs = measure_costs(model, percentile(histogram, 0.5), histogram.rbegin()->first, device,
                          options.seconds("budget"));
  }
  if (!simulated) print_costs(*costs, info);
  const std::vector<Asked> asked =
      ask(capacities, histogram, costs ? &*costs : nullptr, reasons, together(model));
  print_asked(asked, !simulated, reasons);
  if (simulated) {
    print_fitted(
        "\nno time and no proposal: times of the simulated device say nothing of a GPU "
        "(--device cuda measures)\n");
    print_coverage(histogram, together(model));
  }
  if (!costs) return ExitStatus::held;
  const std::vector<PackingPlan> plans =
      cheapest_plans(histogram, *costs, options.number("buckets"), together(model));
  const PackingPlan& best = proposed(plans, kSlack);
  if (!simulated) {
    print_plans(plans, model);
    print_proposal(best);
  }
  if (!reports) return ExitStatus::held;

  boost::json::array counts, list;
  for (const auto& [documents, count] : histogram)
    counts.push_back(boost::json::array{documents, count});
  for (const PackingPlan& one : plans) list.push_back(to_json(one, model));
  const boost::json::object found{{"tool", "lockstep"},
                                  {"version", version()},
                                  {"revision", revision()},
                                  {"device", to_json(info)},
                                  {"histogram", counts},
                                  {"costs", to_json(*costs)},
                                  {"costs_are_simulated", simulated},
                                  {"at", to_json(asked, true, reasons != nullptr)},
                                  {"curve", curve(histogram, *costs, together(model))},
                                  {"file", as_utf8(options.word())},
                                  {"model", as_utf8(model.name)},
                                  {"plans", std::move(list)},
                                  {"proposed", to_json(best, model)}};
  write_reports(options, "", found, packing_page);
  return ExitStatus::held;
}

}  // namespace

Options plan_packing_options() {
  Options options(
      "plan-packing", "FILE",
      "FILE is a scenario (*.yaml), whose training packs are counted, or a histogram: lines of "
      "\"documents\n"
      "packs\". A microbatch of the model is measured on a GPU with graphs of several capacities "
      "and\n"
      "without; the proposal is the fewest buckets that cost at most half a percent more than the\n"
      "cheapest. On the simulated device only packs are counted.",
      1);
  options.device().seconds("budget", "seconds for each measurement", 1);
  options.text("model",
               "a scenario file, H1 or S1; default: FILE, if it is one, or the default model");
  options.text("at", "capacities to look at: numbers, percentiles, max", "p50,p90,p99,max");
  options.number("buckets", "at most that many (8 is the schema's limit)", 8, 1, 8);
  options.text("json", "write histogram, costs and plans to this file")
      .text("html", "draw cost over capacity, with the histogram behind it, on a page for people");
  options
      .example("lockstep plan-packing mine.yaml --at 64,p99",
               "what two capacities would cover and cost")
      .example("lockstep plan-packing mine.yaml --html packing.html",
               "the same as a drawing, for every capacity");
  return options;
}

ExitStatus plan_packing_command(const Words& words) {
  Options options = plan_packing_options();
  if (!options.parse(words)) return ExitStatus::held;
  const CommandFiles files(options);
  const Packs packs = read_packs(options.word());
  Scenario model = packs.source.value_or(Scenario());
  if (options.has("model")) files.reads("--model", options.text("model"));
  files.reads_data_of(model);
  if (options.has("model")) model = read_model(options.text("model"));
  return plan(options, packs, measurable(std::move(model)));
}

}  // namespace lockstep
