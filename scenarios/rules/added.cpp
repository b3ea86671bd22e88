// L41 and later: rules of keys that came after the first tokens were printed. Their numbers follow
// those of the other rules, whatever their subject, because reports name the lowest rule first.
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
// microbatches of a step only a bucket that was evicted is captured.
Findings passes_of_a_capture_find_free_slots(const Scenario& scenario) {
  const Scenario::CudaGraph& graph = scenario.cuda_graph;
  if (graph.capture_passes == 0) return {};
  const bool evicts = graph.graph_memory_limit > 0 && graph.max_packed_seqs.size() > 1;
  if (graph.impl == GraphImpl::partial && !(evicts && scenario.training.in_flight > 1)) return {};
  return {{"cuda_graph.capture_passes", "0", ""}};
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
       "capture_passes needs impl partial, and one microbatch in flight where graph_memory_limit "
       "evicts buckets",
       "none captures nothing, full_iteration no region; a bucket that is captured again in the "
       "middle of a step would overwrite the activations of microbatches in flight",
       passes_of_a_capture_find_free_slots,
       "cuda_graph.capture_passes cuda_graph.impl cuda_graph.graph_memory_limit "
       "cuda_graph.max_packed_seqs training.in_flight",
       "cuda_graph: {impl: none, capture_passes: 1}"},
  };
  return kRules;
}

}  // namespace lockstep
