// L24..L31: what may be moved to the host or computed again.
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

using std::to_string;

// How much of a symbol lies in a graph. Of `E`, the router can be captured without the experts.
enum class Captured { no, router, whole };

Captured captured(const Scenario& scenario, char symbol) {
  if (!with_partial_graphs(scenario)) return Captured::no;
  if (with_whole_layers(scenario)) return Captured::whole;
  const auto module = [&](GraphModule module) {
    return holds(scenario.cuda_graph.modules, module);
  };
  switch (symbol) {
    case 'M':
      return module(GraphModule::mamba) ? Captured::whole : Captured::no;
    case '*':
      return module(GraphModule::attn) ? Captured::whole : Captured::no;
    case '-':
      return module(GraphModule::mlp) ? Captured::whole : Captured::no;
    default:
      if (module(GraphModule::moe)) return Captured::whole;
      return module(GraphModule::moe_router) ? Captured::router : Captured::no;
  }
}

// Residual stream i is what symbol i reads. It is an input or output of a graph unless no graph
// touches it or it lies inside of one: then both symbols beside it are captured, are of one block,
// and nothing eager adds to it later, as experts outside of the graph of their router do.
std::vector<bool> static_residuals(const Scenario& scenario) {
  const std::string& pattern = scenario.model.pattern;
  std::vector<bool> crosses(pattern.size() + 1);
  for (const Scenario::Block& block : scenario.blocks()) {
    for (int i = block.first; i < block.first + block.count; ++i) {
      const Captured how = captured(scenario, pattern[i]);
      if (how == Captured::no) continue;
      crosses[i] = true;
      if (how == Captured::whole) crosses[i + 1] = true;
    }
    const bool inside = block.count == 2 &&
                        captured(scenario, pattern[block.first]) == Captured::whole &&
                        captured(scenario, pattern[block.first + 1]) == Captured::whole;
    if (inside) crosses[block.first + 1] = false;
  }
  return crosses;
}

// Modules keep only one tensor that can cross the boundary of a graph: a residual stream.
bool is_static(const Scenario& scenario, OffloadModule module) {
  if (offload_row(module).kept != Kept::residual) return false;
  const std::string& pattern = scenario.model.pattern;
  const std::vector<bool> crosses = static_residuals(scenario);
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (has_module(pattern[i], module) && crosses[i]) return true;
  }
  return false;
}

bool has_its_layer(const Scenario& scenario, OffloadModule module) {
  const std::string& pattern = scenario.model.pattern;
  return std::any_of(pattern.begin(), pattern.end(),
                     [&](char symbol) { return has_module(symbol, module); });
}

bool has_its_layer(const Scenario& scenario, Recompute module) {
  const char layer = layer_of(module);
  return layer == '\0' || has_layer(scenario, layer);
}

// One module that this scenario could offload as far as layers and graphs go.
std::vector<OffloadModule> any_legal_module(const Scenario& scenario) {
  for (const OffloadModule module : offloadable_modules(scenario)) {
    if (module != OffloadModule::attn_proj) return {module};  // Not alone: L25.
  }
  return {};
}

Findings offload_has_its_layer(const Scenario& scenario) {
  const auto& modules = scenario.offload.modules;
  std::vector<OffloadModule> legal;
  for (const OffloadModule module : modules) {
    if (has_its_layer(scenario, module)) legal.push_back(module);
  }
  if (legal == modules) return {};
  if (legal.empty()) legal = any_legal_module(scenario);
  return {{"offload.modules", set_text(legal),
           set_text(modules) + " of \"" + scenario.model.pattern + "\""}};
}

Findings recompute_has_its_layer(const Scenario& scenario) {
  const auto& modules = scenario.model.recompute;
  std::vector<Recompute> legal;
  for (const Recompute module : modules) {
    if (has_its_layer(scenario, module)) legal.push_back(module);
  }
  if (legal == modules) return {};
  return {{"model.recompute", set_text(legal),
           set_text(modules) + " of \"" + scenario.model.pattern + "\""}};
}

// In fp8 the projection has codes of its own, unless it saves its original input.
bool projection_shares_its_input(const Scenario& scenario) {
  return scenario.numerics != std::vector{Numerics::fp8} ||
         holds(scenario.fp8.save_original_input, Fp8Layer::attn_proj);
}

Findings projection_needs_core_attention(const Scenario& scenario) {
  std::vector<OffloadModule> modules = scenario.offload.modules;
  if (!holds(modules, OffloadModule::attn_proj) || holds(modules, OffloadModule::core_attn) ||
      !projection_shares_its_input(scenario))
    return {};
  modules.push_back(OffloadModule::core_attn);
  std::sort(modules.begin(), modules.end());
  return {{"offload.modules", set_text(modules), set_text(scenario.offload.modules)}};
}

// Next to a norm lies the linear layer that it feeds; its input never crosses a region's boundary.
OffloadModule neighbour(const Scenario& scenario, OffloadModule norm) {
  if (norm == OffloadModule::attn_norm) return OffloadModule::qkv_linear;
  return has_layer(scenario, '-') ? OffloadModule::mlp_fc1 : OffloadModule::expert_fc1;
}

Findings static_buffers_stay(const Scenario& scenario) {
  if (!with_partial_graphs(scenario)) return {};
  std::vector<OffloadModule> legal, refused;
  for (const OffloadModule module : scenario.offload.modules) {
    const bool moves = !is_static(scenario, module);
    if (!moves) refused.push_back(module);
    const OffloadModule instead = moves ? module : neighbour(scenario, module);
    if (!holds(legal, instead)) legal.push_back(instead);
  }
  if (refused.empty()) return {};
  std::sort(legal.begin(), legal.end());
  legal.erase(std::unique(legal.begin(), legal.end()), legal.end());
  return {{"offload.modules", set_text(legal), set_text(refused)}};
}

Findings recomputed_norms_are_not_moved(const Scenario& scenario) {
  std::vector<Recompute> recompute = scenario.model.recompute;
  if (!holds(recompute, Recompute::layernorm)) return {};
  const auto& modules = scenario.offload.modules;
  const bool both = std::any_of(modules.begin(), modules.end(), [](OffloadModule module) {
    return offload_row(module).kept == Kept::norm_output;
  });
  if (!both) return {};
  std::erase(recompute, Recompute::layernorm);
  return {{"model.recompute", set_text(recompute), "offload " + set_text(modules)}};
}

// What is computed again with a whole module, and so not there to be moved.
Findings recomputed_modules_are_not_moved(const Scenario& scenario) {
  struct Row {
    Recompute module;
    std::vector<OffloadModule> inside;
  };
  static const std::vector<Row> rows{
      {Recompute::core_attn, {OffloadModule::attn_proj}},
      {Recompute::mamba, {OffloadModule::mamba_scan}},
      {Recompute::moe, {OffloadModule::expert_fc1, OffloadModule::moe_act}}};
  std::vector<Recompute> recompute = scenario.model.recompute;
  const auto& moved = scenario.offload.modules;
  for (const Row& row : rows) {
    const bool both =
        std::ranges::any_of(row.inside, [&](OffloadModule module) { return holds(moved, module); });
    if (both) std::erase(recompute, row.module);
  }
  if (recompute == scenario.model.recompute) return {};
  return {{"model.recompute", set_text(recompute), "offload " + set_text(moved)}};
}

Findings plan_comes_before_capture(const Scenario& scenario) {
  if (!with_offload(scenario) || !with_graphs(scenario) || scenario.cuda_graph.warmup_steps > 0)
    return {};
  return {{"cuda_graph.warmup_steps", "1", "0"}};
}

Findings one_graph_joins_its_copies(const Scenario& scenario) {
  const bool full = scenario.cuda_graph.impl == GraphImpl::full_iteration;
  if (!with_offload(scenario) || !full || scenario.offload.max_inflight) return {};
  return {{"offload.max_inflight", "1", "unlimited"}};
}

Findings delay_has_something_to_delay(const Scenario& scenario) {
  if (!with_offload(scenario) || !scenario.offload.delay_until_cuda_graph) return {};
  const auto& modules = scenario.offload.modules;
  const bool experts = std::any_of(modules.begin(), modules.end(), [](OffloadModule module) {
    return offload_row(module).kept == Kept::experts;
  });
  if (with_partial_graphs(scenario) && experts && captured(scenario, 'E') != Captured::whole)
    return {};
  const bool holds_experts = holds(scenario.cuda_graph.modules, GraphModule::moe);
  if (!with_partial_graphs(scenario) || !experts || !holds_experts)
    return {{"offload.delay_until_cuda_graph", "false", ""}};
  std::vector<GraphModule> graphs = scenario.cuda_graph.modules;
  std::replace(graphs.begin(), graphs.end(), GraphModule::moe, GraphModule::moe_router);
  return {{"cuda_graph.modules", set_text(graphs), set_text(scenario.cuda_graph.modules)}};
}

Findings captured_copies_have_their_graph(const Scenario& scenario) {
  if (!scenario.offload.captured) return {};
  if (scenario.offload.pool_slack > 0 && captures_copies(scenario))
    return {{"offload.pool_slack", "0", to_string(scenario.offload.pool_slack)}};
  if (captures_copies(scenario)) return {};
  return {{"offload.captured", "false", set_text(scenario.offload.modules)}};
}

Findings plan_has_its_step(const Scenario& scenario) {
  if (!with_offload(scenario) || scenario.training.steps >= 2) return {};
  return {{"training.steps", "2", to_string(scenario.training.steps)}};
}

}  // namespace

char layer_of(Recompute module) {
  switch (module) {
    case Recompute::layernorm:
      return '\0';
    case Recompute::core_attn:
      return '*';
    case Recompute::mlp_act:
    case Recompute::mlp:
      return '-';
    case Recompute::mamba:
      return 'M';
    case Recompute::moe_act:
    case Recompute::moe:
      return 'E';
  }
  return '\0';
}

std::vector<OffloadModule> offloadable_modules(const Scenario& scenario) {
  std::vector<OffloadModule> modules;
  for (const OffloadModuleRow& row : kOffloadModules) {
    if (has_its_layer(scenario, row.module) && !is_static(scenario, row.module))
      modules.push_back(row.module);
  }
  return modules;
}

bool captures_copies(const Scenario& scenario) {
  const std::vector<std::int64_t> stages = stages_of_layers(scenario);
  const std::string& pattern = scenario.model.pattern;
  for (std::int64_t stage = 0; stage < scenario.parallel.pipeline; ++stage) {
    std::vector<bool> groups;  // In order of execution: whether its layer lies in a graph.
    for (std::size_t layer = 0; layer < pattern.size(); ++layer) {
      for (const OffloadModule module : scenario.offload.modules) {
        if (stages[layer] == stage && has_module(pattern[layer], module))
          groups.push_back(captured(scenario, pattern[layer]) == Captured::whole);
      }
    }
    const std::int64_t staying =
        std::ssize(groups) * (1'000'000 - scenario.offload.fraction.millionths) / 1'000'000;
    if (std::find(groups.begin(), groups.end() - staying, true) != groups.end() - staying)
      return true;
  }
  return false;
}

std::span<const Rule> offload_rules() {
  static constexpr Rule kRules[] = {
      {"L24",
       "an offload module needs its layer: attn_norm, qkv_linear, core_attn, attn_proj `*`; "
       "mlp_norm `-` or `E`; "
       "mlp_fc1 `-`; expert_fc1, moe_act `E`; mamba_* `M`",
       "nothing to move", offload_has_its_layer, "offload.modules model.pattern",
       "model: {pattern: \"M-\"}, offload: {modules: [core_attn]}"},
      {"L24",
       "a recompute module needs its layer: core_attn `*`; mlp, mlp_act `-`; moe, moe_act `E`; "
       "mamba `M`",
       "nothing to compute again", recompute_has_its_layer, "model.recompute model.pattern",
       "model: {recompute: [moe_act]}"},
      {"L25", "attn_proj needs core_attn; in fp8 only if it is in save_original_input",
       "its input is core_attn's output, needed by both backwards", projection_needs_core_attention,
       "offload.modules fp8.save_original_input numerics", "offload: {modules: [attn_proj]}"},
      {"L26", "partial: a tensor that is an input or output of a graph cannot be offloaded",
       "static buffer: nothing is freed", static_buffers_stay,
       "offload.modules cuda_graph.impl cuda_graph.modules model.pattern",
       "cuda_graph: {modules: [attn]}, offload: {modules: [attn_norm]}"},
      {"L27", "recompute layernorm excludes offload of qkv_linear, mlp_fc1, mamba_in_proj",
       "that tensor is the norm's output and is not saved", recomputed_norms_are_not_moved,
       "model.recompute offload.modules",
       "model: {recompute: [layernorm]}, offload: {modules: [mlp_fc1]}"},
      {"L27",
       "recompute core_attn excludes offload of attn_proj, mamba of mamba_scan, moe of expert_fc1 "
       "and moe_act",
       "that tensor is computed again and not saved", recomputed_modules_are_not_moved,
       "model.recompute offload.modules",
       "model: {recompute: [core_attn]}, offload: {modules: [core_attn, attn_proj]}"},
      {"L28", "offload with graphs needs warmup_steps > 0",
       "plan and pinned buffers must exist before capture", plan_comes_before_capture,
       "offload.modules cuda_graph.impl cuda_graph.warmup_steps",
       "cuda_graph: {warmup_steps: 0}, offload: {modules: [mlp_fc1]}"},
      {"L29", "offload under full_iteration needs an integer max_inflight",
       "nothing returns to the pool inside one graph without a join", one_graph_joins_its_copies,
       "offload.max_inflight offload.modules cuda_graph.impl",
       "cuda_graph: {impl: full_iteration}, offload: {modules: [mlp_fc1]}"},
      {"L30", "delay_until_cuda_graph needs partial, and expert_fc1 or moe_act outside every graph",
       "nothing to delay", delay_has_something_to_delay,
       "offload.delay_until_cuda_graph offload.modules cuda_graph.impl cuda_graph.modules",
       "offload: {modules: [mlp_fc1], delay_until_cuda_graph: true}"},
      {"L30",
       "captured needs partial, a group that leaves and returns in one captured layer, and "
       "pool_slack 0",
       "no copy would be a node, or its graph would hold a buffer that another group has by then",
       captured_copies_have_their_graph,
       "offload.captured offload.modules offload.fraction offload.pool_slack cuda_graph.impl "
       "cuda_graph.modules parallel.pipeline parallel.chunks",
       "cuda_graph: {modules: [attn]}, offload: {modules: [mlp_fc1], captured: true}"},
      {"L31", "offload needs steps >= 2", "the first step records the plan", plan_has_its_step,
       "offload.modules training.steps",
       "training: {steps: 1}, cuda_graph: {impl: none}, offload: {modules: [mlp_fc1]}"},
  };
  return kRules;
}

}  // namespace lockstep
