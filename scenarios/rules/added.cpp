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

}  // namespace

std::span<const Rule> added_rules() {
  static constexpr Rule kRules[] = {
      {"L41", "evaluation: replay needs impl partial",
       "none has no graph; full_iteration replays a graph of the whole evaluation",
       replayed_evaluations_are_partial, "cuda_graph.evaluation cuda_graph.impl",
       "cuda_graph: {impl: none, evaluation: replay}"},
  };
  return kRules;
}

}  // namespace lockstep
