// L41 and later: rules of keys that came after the first tokens were printed. Their numbers follow
// those of the other rules, whatever their subject, because reports name the lowest rule first.
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "scenarios/by_one_rank.h"
#include "scenarios/documents/layout.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

Findings replayed_evaluations_are_partial(const Scenario& scenario) {
  const bool replays = scenario.cuda_graph.evaluation == GraphEvaluation::replay;
  if (!replays || scenario.cuda_graph.impl == GraphImpl::partial) return {};
  return {{"cuda_graph.evaluation", "eager", ""}};
}

Findings whole_modules_hold_their_activations(const Scenario& scenario) {
  std::vector<Recompute> recompute = scenario.model.recompute;
  const auto leave_out = [&](Recompute whole, Recompute part) {
    if (holds(recompute, whole)) std::erase(recompute, part);
  };
  leave_out(Recompute::mlp, Recompute::mlp_act);
  leave_out(Recompute::moe, Recompute::moe_act);
  if (recompute == scenario.model.recompute) return {};
  return {{"model.recompute", set_text(recompute), set_text(scenario.model.recompute)}};
}

// A pass of a capture writes to the slots, so no microbatch may lie in one. Between the
// microbatches of a step only a bucket that was evicted is captured. Those of several chunks evict
// each other, and a microbatch lies in the slots of all.
Findings passes_of_a_capture_find_free_slots(const Scenario& scenario) {
  const Scenario::CudaGraph& graph = scenario.cuda_graph;
  if (graph.capture_passes == 0) return {};
  const bool has_chunks = scenario.parallel.chunks > 1;
  const bool evicts =
      graph.graph_memory_limit > 0 && (graph.max_packed_seqs.size() > 1 || has_chunks);
  const bool finds_free = !has_chunks && scenario.training.in_flight == 1;
  if (graph.impl == GraphImpl::partial && (!evicts || finds_free)) return {};
  return {{"cuda_graph.capture_passes", "0", ""}};
}

// Graphs of regions alone leave moments between their launches.
Findings shared_memory_is_partial(const Scenario& scenario) {
  const Scenario::CudaGraph& graph = scenario.cuda_graph;
  if (!graph.shared_memory || graph.impl == GraphImpl::partial) return {};
  return {{"cuda_graph.shared_memory", "false", ""}};
}

bool is_fp8(const Scenario& scenario) { return holds(scenario.numerics, Numerics::fp8); }

Findings delayed_scaling_warms_up(const Scenario& scenario) {
  const Scenario::CudaGraph& graph = scenario.cuda_graph;
  const bool delayed = is_fp8(scenario) && scenario.fp8.recipe == Fp8Recipe::delayed;
  if (!delayed || !with_graphs(scenario) || graph.warmup_steps > 0) return {};
  return {{"cuda_graph.warmup_steps", "1", ""}};
}

Findings saved_inputs_have_their_layer(const Scenario& scenario) {
  if (!is_fp8(scenario)) return {};
  std::vector<Fp8Layer> there = scenario.fp8.save_original_input;
  std::erase_if(there, [&](Fp8Layer layer) { return !has_fp8_layer(scenario.model, layer); });
  if (there == scenario.fp8.save_original_input) return {};
  return {{"fp8.save_original_input", set_text(there), set_text(scenario.fp8.save_original_input)}};
}

Findings saved_inputs_hold_what_is_recomputed(const Scenario& scenario) {
  if (!is_fp8(scenario)) return {};
  std::vector<Fp8Layer> all = scenario.fp8.save_original_input;
  for (const Fp8Layer layer : implied_original_inputs(scenario.model)) {
    if (!holds(all, layer)) all.push_back(layer);
  }
  if (all.size() == scenario.fp8.save_original_input.size()) return {};
  std::sort(all.begin(), all.end());
  return {{"fp8.save_original_input", set_text(all), set_text(scenario.fp8.save_original_input)}};
}

Findings gathered_codes_need_shards(const Scenario& scenario) {
  if (!is_fp8(scenario) || !scenario.fp8.param_gather || with_sharding(scenario)) return {};
  return {{"fp8.param_gather", "false", ""}};
}

Findings cached_codes_last(const Scenario& scenario) {
  if (!is_fp8(scenario) || !scenario.fp8.weight_cache || scenario.fp8.param_gather) return {};
  if (scenario.fsdp.strategy != Sharding::optim_grads_params) return {};
  return {{"fp8.weight_cache", "false", ""}};
}

Findings gathered_codes_are_cached(const Scenario& scenario) {
  if (!is_fp8(scenario) || !scenario.fp8.param_gather || scenario.fp8.weight_cache) return {};
  return {{"fp8.weight_cache", "true", ""}};
}

std::string list_text(const std::vector<Scenario::Resume>& list) {
  std::string text;
  for (const Scenario::Resume& one : list) {
    text += std::string(text.empty() ? "" : ", ") + "{step: " + std::to_string(one.step);
    if (one.microbatch != 0) text += ", microbatch: " + std::to_string(one.microbatch);
    if (one.data != 0) text += ", data: " + std::to_string(one.data);
    text += "}";
  }
  return "[" + text + "]";
}

// Refuses the items that `edit` changes, and names the list with them changed.
Findings with_items(const Scenario& scenario, const std::string& detail,
                    const std::function<void(Scenario::Resume&)>& edit) {
  std::vector<Scenario::Resume> list = scenario.training.resume_at;
  for (Scenario::Resume& one : list) edit(one);
  if (list == scenario.training.resume_at) return {};
  return {{"training.resume_at", list_text(list), detail}};
}

// Behind the first microbatch, before the last, and increasing.
Findings resumes_lie_in_the_run(const Scenario& scenario) {
  const auto& asked = scenario.training.resume_at;
  std::vector<Scenario::Resume> legal;
  std::pair<std::int64_t, std::int64_t> last{0, 0};
  for (const Scenario::Resume& one : asked) {
    const bool in_a_step = one.step >= 0 && one.step < scenario.training.steps;
    if (!in_a_step || one.microbatch < 0 ||
        one.microbatch >= global_microbatches(scenario, one.step) ||
        std::pair(one.step, one.microbatch) <= last)
      continue;
    last = {one.step, one.microbatch};
    legal.push_back(one);
  }
  if (legal == asked) return {};
  return {{"training.resume_at", list_text(legal),
           list_text(asked) + " of " + std::to_string(scenario.training.steps) + " steps"}};
}

// One fold of each gradient, whatever the number of ranks.
bool folds_over_all_ranks(const Scenario& scenario) {
  return (scenario.fsdp.strategy == Sharding::optim_grads ||
          scenario.fsdp.strategy == Sharding::optim_grads_params) &&
         scenario.fsdp.reduction == Reduction::ordered;
}

Findings only_sharded_gradients_resume_within(const Scenario& scenario) {
  if (folds_over_all_ranks(scenario)) return {};
  const std::int64_t own = scenario.parallel.data;
  return with_items(scenario, "fsdp.strategy " + word(scenario.fsdp.strategy), [&](auto& one) {
    one.microbatch = 0;
    if (one.data != own) one.data = 0;
  });
}

// Ranks before and after have done equally many microbatches each. Where every rank is a process
// the number of ranks stays, so the file's counts too.
Findings ranks_divide_what_is_done(const Scenario& scenario) {
  std::int64_t before = scenario.parallel.data;
  return with_items(scenario, "microbatches that are done, and ranks", [&](auto& one) {
    const std::int64_t after = one.data == 0 ? scenario.parallel.data : one.data;
    const bool divides = one.microbatch % before == 0 && one.microbatch % after == 0 &&
                         one.microbatch % scenario.parallel.data == 0;
    if (!divides) one.microbatch = 0;
    before = after;
  });
}

// The first rule that the scenario breaks with so many ranks and not as it is; "" if there is none.
std::string rule_against(const Scenario& scenario, std::int64_t ranks) {
  std::set<std::string> broken;
  for (const ScenarioError& error : check_legality(by_ranks(scenario, scenario.parallel.data)))
    broken.insert(error.rule);
  for (const ScenarioError& error : check_legality(by_ranks(scenario, ranks))) {
    if (!broken.contains(error.rule)) return error.rule;
  }
  return "";
}

Findings other_ranks_are_legal(const Scenario& scenario) {
  if (!folds_over_all_ranks(scenario)) return {};  // Refused above.
  std::set<std::int64_t> good{0, scenario.parallel.data};
  for (const Scenario::Resume& one : scenario.training.resume_at) {
    if (good.contains(one.data)) continue;
    std::string why = "text is cut into evaluations by the ranks";
    if (!reads_bytes(scenario.data)) why = "a step's microbatches are no multiple";
    if (!reads_bytes(scenario.data) && divides_microbatches(scenario, one.data))
      why = rule_against(scenario, one.data);
    if (why.empty()) {
      good.insert(one.data);
      continue;
    }
    return with_items(scenario, std::to_string(one.data) + " ranks: " + why, [&](auto& item) {
      if (item.data == one.data) item.data = 0;
    });
  }
  return {};
}

}  // namespace

std::span<const Rule> added_rules() {
  static constexpr Rule kRules[] = {
      {"L41", "evaluation: replay needs impl partial",
       "none has no graph; full_iteration replays a graph of the whole evaluation",
       replayed_evaluations_are_partial, "cuda_graph.evaluation cuda_graph.impl",
       "cuda_graph: {impl: none, evaluation: replay}"},
      {"L42", "recompute mlp excludes mlp_act, moe excludes moe_act",
       "the whole module is computed again with its activation",
       whole_modules_hold_their_activations, "model.recompute",
       "model: {recompute: [mlp_act, mlp]}"},
      {"L43",
       "capture_passes needs impl partial, and one chunk and one microbatch in flight where "
       "graph_memory_limit evicts buckets",
       "none captures nothing, full_iteration no region; a bucket that is captured again in the "
       "middle of a step would overwrite the activations of microbatches in flight",
       passes_of_a_capture_find_free_slots,
       "cuda_graph.capture_passes cuda_graph.impl cuda_graph.graph_memory_limit "
       "cuda_graph.max_packed_seqs training.in_flight parallel.chunks",
       "cuda_graph: {impl: none, capture_passes: 1}"},
      {"L44", "resume_at must lie behind the first microbatch and within the run, and increase",
       "nothing would be saved, or nothing would go on", resumes_lie_in_the_run,
       "training.resume_at training.steps training.microbatches training.change_microbatches_at "
       "parallel.data",
       "training: {resume_at: [{step: 3}]}"},
      {"L44",
       "resume_at with microbatch, or with data other than parallel.data, needs strategy "
       "optim_grads or optim_grads_params and reduction ordered",
       "otherwise each rank folds its own microbatches, and bits depend on the number of ranks",
       only_sharded_gradients_resume_within, "training.resume_at fsdp.strategy fsdp.reduction",
       "training: {resume_at: [{step: 1, microbatch: 1}]}"},
      {"L44", "microbatch of resume_at must be a multiple of the ranks before and after it",
       "ranks do equally many microbatches each", ranks_divide_what_is_done,
       "training.resume_at parallel.data",
       "training: {resume_at: [{step: 1, microbatch: 1}]}, fsdp: {strategy: optim_grads}, "
       "parallel: {data: 2}"},
      {"L44",
       "data of resume_at must divide the microbatches of every step; the file must be legal with "
       "so many ranks, and must not read data.path",
       "the run goes on with the same microbatches", other_ranks_are_legal,
       "training.resume_at data.kind parallel.data",
       "training: {resume_at: [{step: 1, data: 3}]}, fsdp: {strategy: optim_grads}"},
      {"L45", "shared_memory needs impl partial",
       "none has no graphs that could share memory; of the one graph of full_iteration a tensor "
       "whose bytes are used again could not be compared, because nothing can read between its "
       "nodes",
       shared_memory_is_partial, "cuda_graph.shared_memory cuda_graph.impl",
       "cuda_graph: {impl: none, shared_memory: true}"},
      {"L46", "fp8: recipe delayed with graphs needs warmup_steps above 0",
       "the first step takes exponents from its own operands", delayed_scaling_warms_up,
       "fp8.recipe cuda_graph.impl cuda_graph.warmup_steps numerics",
       "numerics: [fp8], fp8: {recipe: delayed}, cuda_graph: {warmup_steps: 0}"},
      {"L47",
       "fp8: a layer of save_original_input must be in the pattern, shared_* need shared_hidden",
       "nothing to save", saved_inputs_have_their_layer,
       "fp8.save_original_input model.pattern model.moe.shared_hidden numerics",
       "numerics: [fp8], model: {pattern: \"M-\"}, fp8: {save_original_input: [attn_proj]}"},
      {"L48", "fp8: save_original_input must hold the layers whose input is recomputed",
       "else nobody reads what is computed again", saved_inputs_hold_what_is_recomputed,
       "fp8.save_original_input model.recompute numerics",
       "numerics: [fp8], model: {recompute: [mlp_act]}, fp8: {save_original_input: []}"},
      {"L49", "fp8: param_gather needs a strategy other than no_shard", "nothing is gathered",
       gathered_codes_need_shards, "fp8.param_gather fsdp.strategy numerics",
       "numerics: [fp8], fp8: {param_gather: true}"},
      {"L50", "fp8: weight_cache under optim_grads_params needs param_gather",
       "gathered memory does not last", cached_codes_last,
       "fp8.weight_cache fp8.param_gather fsdp.strategy numerics",
       "numerics: [fp8], fp8: {weight_cache: true}, fsdp: {strategy: optim_grads_params}"},
      {"L51", "fp8: param_gather needs weight_cache", "only shards are quantised",
       gathered_codes_are_cached, "fp8.param_gather fp8.weight_cache numerics",
       "numerics: [fp8], fp8: {param_gather: true, weight_cache: false}, fsdp: {strategy: optim}"},
  };
  return kRules;
}

}  // namespace lockstep
