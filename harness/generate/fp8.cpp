// fp8 numerics: a case that is drawn without them gets them, if it is legal and built with them.
#include "scenarios/fp8.h"

#include <algorithm>

#include "harness/generate/held.h"
#include "harness/generate/parts.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// More than one run of 128 in the sums of all three products of an MLP: over its inputs, its
// outputs and the rows of a microbatch. Of experts only the widths grow.
void lengthen_sums(Scenario& s) {
  constexpr std::int64_t kMore = 144, kMostRows = 3072;  // Rows of all passes of training.
  // Rare sizes are drawn with narrow rows: a step of 131,072 words by 144 takes a second.
  constexpr std::int64_t kMostWords = 4096, kMostLayers = 16;
  if (s.model.vocab > kMostWords || std::ssize(s.model.pattern) > kMostLayers) return;
  s.model.hidden = s.model.mlp.hidden = kMore;
  if (has_experts(s.model) && s.model.moe.experts <= 8) s.model.moe.hidden = kMore;
  Scenario longer = s;
  longer.data.pack_length += kMore;
  if (longer.data.kind == DataKind::lengths && !longer.data.documents.empty()) {
    for (MicrobatchLengths& documents : longer.data.documents.front()) {
      if (documents.empty()) continue;
      documents.back() += kMore;
      break;
    }
  }
  const std::int64_t rows =
      s.training.steps * s.training.microbatches * s.parallel.data * longer.data.pack_length;
  // Microbatches that become too long for graphs may leave none for a recapture or an evaluation.
  if (rows <= kMostRows && check_legality(longer).empty() && captures_what_it_asks(longer))
    s = longer;
}

// Weights shrink to rounding errors of 0.02, and then to the learning rate: their exponents, and
// those of what they are multiplied with, reach the cap.
void let_weights_vanish(Scenario& s) {
  Scenario::Training::Optimizer& o = s.training.optimizer;
  if (s.training.steps < 4) return;
  o = {.lr = 1.0e-12, .weight_decay = 1.0e12};
  o.decay_steps = s.training.steps;
}

void take_fp8(Choices& c, Scenario& s) {
  s.numerics = {Numerics::fp8};
  widen_for_fp8(s.model);
  s.fp8.weight_cache = s.fsdp.strategy != Sharding::optim_grads_params && !c.one_in(4);
  if (with_sharding(s) && c.one_in(2)) s.fp8.param_gather = s.fp8.weight_cache = true;
  s.fp8.save_original_input = implied_original_inputs(s.model);
  if (!c.one_in(5)) lengthen_sums(s);
  if (c.one_in(8)) let_weights_vanish(s);
}

// Its first step takes exponents of its own, so no graph may be captured before the second (L46).
void draw_recipe(Choices& c, Scenario& s) {
  const bool warms_up = !with_graphs(s) || s.cuda_graph.warmup_steps > 0;
  if (!warms_up || !c.one_in(3)) return;
  s.fp8.recipe = Fp8Recipe::delayed;
  s.fp8.history = c.pick<std::int64_t>({2, 1, 3, 1024});
  if (c.one_in(3)) s.fp8.algorithm = Fp8Algorithm::most_recent;
  s.fp8.margin = c.between(0, 2);
  // Operands grow faster than their exponents follow, so that codes saturate. A decay that lets
  // weights vanish at its own rate would let them grow without bound at this one.
  Scenario::Training::Optimizer& o = s.training.optimizer;
  const bool grows = s.fp8.margin == 0 && o.lr > 0 && o.weight_decay <= 10 && c.one_in(3);
  if (grows) o.lr = 0.05;
}

// The keys of fp8, where the case stays legal.
bool take_keys(Choices& c, Scenario& s) {
  Scenario with = s;
  take_fp8(c, with);
  if (!check_legality(with).empty() || !check_built(with).empty()) return false;
  s = with;
  draw_recipe(c, s);
  return true;
}

}  // namespace

void widen_for_fp8(Scenario::Model& m) {
  widen_for_bf16(m);
  for (std::int64_t* width : {&m.hidden, &m.mlp.hidden, &m.moe.hidden, &m.moe.shared_hidden})
    *width = (*width + 15) / 16 * 16;
}

void draw_fp8(Choices& c, bool often, Scenario& s) {
  const bool from_the_beginning = s.numerics.front() == Numerics::fp8;
  const bool asked = from_the_beginning || (c.one_in(often ? 2 : 3));
  if (!asked || (!take_keys(c, s) && !from_the_beginning)) return;
  std::vector<Fp8Layer>& saved = s.fp8.save_original_input;
  for (int i = 0; i <= static_cast<int>(Fp8Layer::shared_fc2); ++i) {
    const auto layer = static_cast<Fp8Layer>(i);
    const bool is_free = has_fp8_layer(s.model, layer) && !holds(saved, layer);
    if (is_free && c.one_in(5)) saved.push_back(layer);
  }
  std::sort(saved.begin(), saved.end());
}

}  // namespace lockstep
