// L15..L23: what a graph holds, and that some graph is replayed.
#include <map>
#include <optional>

#include "scenarios/documents/layout.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

std::vector<GraphModule> with_module(std::vector<GraphModule> modules, GraphModule more) {
  if (!holds(modules, more)) modules.push_back(more);
  std::sort(modules.begin(), modules.end());
  return modules;
}

std::vector<GraphModule> without_module(std::vector<GraphModule> modules, GraphModule less) {
  std::erase(modules, less);
  return modules;
}

Findings modules_need_partial(const Scenario& scenario) {
  const auto& graph = scenario.cuda_graph;
  if (graph.modules.empty() || graph.impl == GraphImpl::partial) return {};
  return {{"cuda_graph.modules", "[]", set_text(graph.modules) + " with " + word(graph.impl)}};
}

Findings modules_have_their_layer(const Scenario& scenario) {
  if (!with_partial_graphs(scenario)) return {};
  const auto& modules = scenario.cuda_graph.modules;
  std::vector<GraphModule> legal;
  for (const GraphModule module : modules) {
    if (has_layer(scenario, layer_of(module))) legal.push_back(module);
  }
  if (legal == modules) return {};
  for (const GraphModule module :
       {GraphModule::attn, GraphModule::mlp, GraphModule::moe, GraphModule::mamba}) {
    if (legal.empty() && has_layer(scenario, layer_of(module))) legal.push_back(module);
  }
  return {{"cuda_graph.modules", set_text(legal),
           set_text(modules) + " of \"" + scenario.model.pattern + "\""}};
}

Findings moe_excludes_its_router(const Scenario& scenario) {
  const auto& modules = scenario.cuda_graph.modules;
  if (!holds(modules, GraphModule::moe) || !holds(modules, GraphModule::moe_router)) return {};
  return {{"cuda_graph.modules", set_text(without_module(modules, GraphModule::moe)),
           set_text(modules)}};
}

Findings preprocess_needs_its_router(const Scenario& scenario) {
  const auto& modules = scenario.cuda_graph.modules;
  if (!holds(modules, GraphModule::moe_preprocess) || holds(modules, GraphModule::moe_router))
    return {};
  return {
      {"cuda_graph.modules",
       set_text(with_module(without_module(modules, GraphModule::moe), GraphModule::moe_router)),
       set_text(modules)}};
}

bool drops_and_pads(const Scenario& scenario) {
  return scenario.model.moe.capacity_factor && scenario.model.moe.pad_to_capacity;
}

Findings captured_experts_are_static(const Scenario& scenario) {
  const bool captured =
      with_whole_layers(scenario) || scenario.cuda_graph.impl == GraphImpl::full_iteration ||
      (with_partial_graphs(scenario) && holds(scenario.cuda_graph.modules, GraphModule::moe));
  const bool is_static = drops_and_pads(scenario) || !scenario.model.moe.host_sync;
  if (!has_layer(scenario, 'E') || !captured || is_static) return {};
  return {{"model.moe.host_sync", "false", ""}};
}

Findings preprocess_stays_on_the_device(const Scenario& scenario) {
  const auto& moe = scenario.model.moe;
  if (!has_layer(scenario, 'E') || !holds(scenario.cuda_graph.modules, GraphModule::moe_preprocess))
    return {};
  Findings findings;
  if (moe.capacity_factor && !moe.pad_to_capacity)
    findings.push_back({"model.moe.pad_to_capacity", "true", ""});
  if (moe.host_sync) findings.push_back({"model.moe.host_sync", "false", ""});
  return findings;
}

Findings static_shapes_need_no_host(const Scenario& scenario) {
  if (!has_layer(scenario, 'E') || !scenario.model.moe.host_sync || !drops_and_pads(scenario))
    return {};
  return {{"model.moe.host_sync", "false", ""}};
}

Findings steps_go_past_warm_up(const Scenario& scenario) {
  const std::int64_t warmup = scenario.cuda_graph.warmup_steps;
  if (!with_graphs(scenario) || scenario.training.steps > warmup) return {};
  return {{"training.steps", to_string(warmup + 1),
           to_string(scenario.training.steps) + " with " + to_string(warmup) + " of warm-up"}};
}

Findings buckets_increase(const Scenario& scenario) {
  auto buckets = scenario.cuda_graph.max_packed_seqs;
  if (!with_graphs(scenario)) return {};
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  if (buckets == scenario.cuda_graph.max_packed_seqs) return {};
  return {{"cuda_graph.max_packed_seqs", list_text(buckets),
           list_text(scenario.cuda_graph.max_packed_seqs)}};
}

// Looks at the documents after warm-up, up to kMostWork of them.
class NeedSearch {
 public:
  explicit NeedSearch(const Scenario& scenario) : scenario_(scenario) {}

  // What each graph of a step must be made for: a graph runs one microbatch, or under
  // full_iteration all of them.
  std::vector<GraphNeed> of_step(std::int64_t step) {
    const bool all = scenario_.cuda_graph.impl == GraphImpl::full_iteration;
    std::vector<GraphNeed> needs{of_ranks(step, 0)};
    for (std::int64_t m = 1; m < scenario_.training.microbatches_at(step) && !is_too_long(); ++m) {
      const GraphNeed need = of_ranks(step, m);
      all ? void(needs[0] = larger(needs[0], need)) : needs.push_back(need);
    }
    return needs;
  }
  bool is_too_long() const { return work_ > kMostWork; }

 private:
  // Microbatch m on every rank, since all ranks take the same way.
  GraphNeed of_ranks(std::int64_t step, std::int64_t m) {
    const std::int64_t ranks = scenario_.parallel.data;
    GraphNeed most;
    for (std::int64_t r = 0; r < ranks && !is_too_long(); ++r) {
      const GraphNeed need =
          need_of(scenario_.data, microbatch_lengths(scenario_, step, m * ranks + r));
      work_ += 1 + need.slots;
      most = larger(most, need);
    }
    return most;
  }

  const Scenario& scenario_;
  std::int64_t work_ = 0;
};

// The least change with which one of the needs fits.
Findings nearest_fit(const Scenario& scenario, const std::vector<GraphNeed>& needs) {
  const auto least = [&](Unfit reason, auto member) {
    std::optional<std::int64_t> value;
    for (const GraphNeed& need : needs) {
      GraphNeed other = need;
      (reason == Unfit::documents ? other.slots : other.longest) = 0;
      if (unfit(scenario, other) == Unfit::no)
        value = std::min(value.value_or(need.*member), need.*member);
    }
    return value;
  };
  if (const auto slots = least(Unfit::documents, &GraphNeed::slots)) {
    return {{"cuda_graph.max_packed_seqs", to_string(*slots),
             "the least need after warm-up is " + to_string(*slots) + " slots"}};
  }
  const auto longest = least(Unfit::length, &GraphNeed::longest);
  const std::int64_t shortest = std::max<std::int64_t>(
      1, longest ? *longest : std::ranges::min(needs, {}, &GraphNeed::longest).longest);
  return {{"cuda_graph.max_seqlen", to_string(shortest),
           "the least need after warm-up is documents of " + to_string(shortest) + " tokens"}};
}

Findings something_fits_a_bucket(const Scenario& scenario) {
  const DataKind kind = scenario.data.kind;
  const bool drawn = kind == DataKind::lengths || kind == DataKind::distribution;
  if (!drawn || !with_graphs(scenario) || allows_no_replay(scenario)) return {};
  std::vector<GraphNeed> needs;
  NeedSearch search(scenario);
  for (std::int64_t step = scenario.cuda_graph.warmup_steps; step < scenario.training.steps;
       ++step) {
    for (const GraphNeed& need : search.of_step(step)) {
      if (unfit(scenario, need) == Unfit::no) return {};
      needs.push_back(need);
    }
    if (search.is_too_long()) return {};
  }
  if (needs.empty()) return {};  // No step after warm-up: L22.
  return nearest_fit(scenario, needs);
}

}  // namespace

char layer_of(GraphModule module) {
  static constexpr char kLayers[] = {'*', '-', 'E', 'E', 'E', 'M'};
  return kLayers[static_cast<int>(module)];
}

bool allows_no_replay(const Scenario& scenario) {
  const auto rule = scenario.expect.counters.find(Counter::graph_replays);
  if (rule == scenario.expect.counters.end() || rule->second.same_as) return false;
  return rule->second.min.value_or(0) <= 0;
}

std::span<const Rule> graph_rules() {
  static constexpr Rule kRules[] = {
      {"L15", "modules needs impl partial", "none has no graph; full_iteration has one for all",
       modules_need_partial, "cuda_graph.modules cuda_graph.impl",
       "cuda_graph: {impl: full_iteration, modules: [attn]}"},
      {"L16", "a graph module needs its layer: attn `*`, mlp `-`, mamba `M`, moe* `E`",
       "nothing to capture", modules_have_their_layer, "cuda_graph.modules model.pattern",
       "model: {pattern: \"M-\"}, cuda_graph: {modules: [attn]}"},
      {"L17", "moe and moe_router exclude each other", "moe holds the router",
       moe_excludes_its_router, "cuda_graph.modules",
       "model: {pattern: \"*E\"}, cuda_graph: {modules: [moe, moe_router]}"},
      {"L18", "moe_preprocess needs moe_router", "its input would cross from eager into a graph",
       preprocess_needs_its_router, "cuda_graph.modules",
       "model: {pattern: \"*E\"}, cuda_graph: {modules: [moe_preprocess]}"},
      {"L19",
       "moe, whole layers with `E`, and full_iteration with `E` need drop-and-pad or no host_sync",
       "sizes that the host reads are those of the captured batch", captured_experts_are_static,
       "cuda_graph.impl cuda_graph.modules model.pattern model.moe.capacity_factor "
       "model.moe.pad_to_capacity "
       "model.moe.host_sync",
       "model: {pattern: \"*E\", moe: {capacity_factor: none, host_sync: true}}"},
      {"L20", "moe_preprocess excludes a capacity_factor without padding, and host_sync",
       "sizes go to the host inside the graph", preprocess_stays_on_the_device,
       "cuda_graph.modules model.moe.capacity_factor model.moe.pad_to_capacity model.moe.host_sync",
       "model: {pattern: \"*E\", moe: {capacity_factor: none, host_sync: true}}, cuda_graph: "
       "{modules: [moe_router, "
       "moe_preprocess]}"},
      {"L21", "host_sync excludes drop-and-pad", "static shapes never need it",
       static_shapes_need_no_host,
       "model.moe.host_sync model.moe.capacity_factor model.moe.pad_to_capacity",
       "model: {pattern: \"*E\", moe: {host_sync: true}}"},
      {"L22", "steps must exceed warmup_steps, with graphs", "none would be replayed",
       steps_go_past_warm_up, "training.steps cuda_graph.warmup_steps cuda_graph.impl",
       "training: {steps: 1}"},
      {"L23", "buckets must increase", "a bucket is chosen by its size", buckets_increase,
       "cuda_graph.max_packed_seqs", "cuda_graph: {max_packed_seqs: [8, 4]}"},
      {"L23",
       "some microbatch after warm-up must fit the largest bucket and max_seqlen (full_iteration: "
       "all of some step), unless counters allow graph_replays 0",
       "none would be replayed", something_fits_a_bucket,
       "cuda_graph.max_packed_seqs cuda_graph.max_seqlen cuda_graph.impl cuda_graph.warmup_steps "
       "data.documents "
       "data.distribution data.tail "
       "expect.counters",
       "data: {documents: [[[3, 4]]]}, cuda_graph: {max_packed_seqs: 1}"},
  };
  return kRules;
}

}  // namespace lockstep
