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
  };
  return kRules;
}

}  // namespace lockstep
