// The table of relations, and what they share.
#include <algorithm>
#include <sstream>

#include "harness/base/errors.h"
#include "harness/foreign/engine_failure.h"
#include "harness/foreign/projection.h"
#include "harness/foreign/relation.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"
#include "scenarios/syntax/nearest.h"

namespace lockstep::foreign {

const std::vector<Relation>& relations() {
  static const std::vector<Relation> table{
      {"R1", "repeat", "equal runs, also in fresh processes and less observed: everything",
       "exact where the engine claims to be deterministic", always, repeat},
      {"R2", "graphs", "with graphs and without: everything", "exact", has_graphs, graphs},
      {"R3", "offload", "with offloading and without: everything", "exact", offloads, offload},
      {"R4", "recompute", "with recomputation and without: all but what is not saved",
       "announced: claims.recompute_exact", recomputes, recompute},
      {"R5", "sharding", "sharded and not, one rank with targets at a time: everything",
       "exact: all but one rank's terms are zero", is_sharded, sharding},
      {"R5b", "sharding-all", "sharded and not, all ranks with targets: everything",
       "exact for two terms: a + b = b + a", is_sharded_on_few_ranks, sharding_all},
      {"R6", "neighbours", "other tokens in a document's neighbours: its losses and activations",
       "exact where documents do not share experts", has_neighbours, neighbours},
      {"R7", "one-voice-document",
       "one half of the documents with targets, other tokens in the rest: gradients and losses",
       "exact: the rest's terms are zero", has_neighbours, one_voice_document},
      {"R8", "padding", "another padding token, and a larger capacity: rows of documents", "exact",
       has_padding, padding},
      {"R9", "place", "documents in reverse order: each one's losses and activations",
       "announced: claims.row_invariant", is_row_invariant, place},
      {"R10", "a-b-a", "a step, after another step with other documents: gradients and losses",
       "exact while weights stand still", has_two_layouts, a_b_a},
      {"R11", "one-voice-microbatch",
       "one microbatch with targets, in another place or beside other tokens: gradients",
       "exact: the other microbatches' terms are zero", has_two_microbatches, one_voice_microbatch},
      {"R11b", "in-flight", "one microbatch in flight, or two where one was asked for: everything",
       "exact: microbatches are added up in their order", has_several_in_flight, in_flight},
      {"R12", "scale", "the loss scale doubled: gradients doubled, losses as they were",
       "exact: a factor of two rounds nothing", is_scaled, scale},
      {"R13", "interludes", "with evaluations, a recapture, a resume, and without: training",
       "exact", has_interludes, interludes},
      {"R14", "amplified", "memory poisoned, and each stream held back: everything", "exact",
       has_amplifiers, amplified},
      {"R15", "counters", "what the engine counts: what the request asked for", "exact",
       has_counters, counters},
      {"R16b", "update",
       "each step's update and loss, computed in binary64 from what the engine observed",
       "within rounding", has_optimizer, update},
      {"R16c", "derivative", "gradients, and how the losses change when weights are moved a little",
       "within the third derivative", has_derivative, derivative},
      {"R16", "oracle",
       "losses and gradients, and those of the model in binary64 on the engine's weights",
       "within 8 times what one unit in the last place moves", has_oracle, oracle},
  };
  return table;
}

AskedRelation asked_relation(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  std::vector<std::string> names;
  for (const Relation& one : relations()) {
    if (name == one.id || name == one.name)
      return {&one, colon == std::string::npos ? Choices() : Choices(text.substr(colon + 1))};
    names.insert(names.end(), {one.id, one.name});
  }
  throw RequestError("--relation: there is no relation " + name + nearest_hint(name, names));
}

std::vector<AskedRelation> asked_relations(const std::string& text) {
  std::vector<std::string> one_by_one;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const bool is_choice = !one_by_one.empty() && part.find('=') != std::string::npos &&
                           part.find(':') == std::string::npos;
    is_choice ? void(one_by_one.back() += "," + part) : one_by_one.push_back(part);
  }
  if (one_by_one.empty()) one_by_one.emplace_back();  // Refused like any other name.
  std::vector<AskedRelation> list;
  for (const std::string& one : one_by_one) list.push_back(asked_relation(one));
  return list;
}

void throw_vacuous(const std::string& reason, const std::string& choices) {
  throw Violated{.judge = JudgeKind::vacuous, .reason = reason, .choices = choices};
}

RunRequest variant(const EngineCase& one, const std::function<void(Scenario&)>& change,
                   const std::string& what) {
  RunRequest request = one.asked_with(change, what);
  const std::vector<ScenarioError> errors = check_legality(request.scenario);
  if (!errors.empty()) throw NotApplicable(what + " is not legal: " + errors.front().what);
  return request;
}

std::vector<std::string> kinds_of_steps(const Hello& hello) {
  std::vector<std::string> kinds;
  for (const std::string& kind : hello.observes) {
    if (!is_kind_of_a_microbatch(kind)) kinds.push_back(kind);
  }
  return kinds;
}

std::int64_t warm_up(const Scenario& scenario) {
  return scenario.cuda_graph.impl == GraphImpl::none ? 0 : scenario.cuda_graph.warmup_steps;
}

GraphFit graph_fit(const Scenario& scenario, const EngineFeed& feed) {
  GraphFit fit;
  if (scenario.cuda_graph.impl == GraphImpl::none) return fit;
  const std::int64_t ranks = scenario.parallel.data;
  for (std::int64_t step = warm_up(scenario); step < feed.steps; ++step) {
    const std::vector<Microbatch>& microbatches = feed.training(step);
    const std::int64_t of_a_rank = std::ssize(microbatches) / ranks;
    const bool whole_steps = scenario.cuda_graph.impl == GraphImpl::full_iteration;
    const std::int64_t at_once = whole_steps ? of_a_rank : 1;
    for (std::int64_t first = 0; first < of_a_rank; first += at_once) {
      std::int64_t fitting = 0;  // Ranks.
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        GraphNeed need;
        for (std::int64_t m = first; m < first + at_once; ++m)
          need =
              larger(need, need_of(scenario.data, lengths_of(at(microbatches, m * ranks + rank))));
        fitting += unfit(scenario, need) == Unfit::no;
      }
      const std::int64_t together = fitting == ranks ? ranks : 0;
      fit.replayed.least += together;
      fit.replayed.most += fitting;
      fit.too_large.least += ranks - fitting;
      fit.too_large.most += ranks - together;
    }
  }
  return fit;
}

std::string why_documents_mix(const EngineCase& one) {
  // Capacity, buffers and balance losses of experts see all rows of a pack.
  const bool experts = one.scenario().model.pattern.find('E') != std::string::npos;
  return experts ? "experts see the rows of all documents" : "";
}

std::string why_scales_mix(const EngineCase& one) {
  return multiplies_fp8(one.scenario()) ? "in fp8 all documents of a pack make its scales" : "";
}

bool has_delayed_scales(const EngineCase& one) {
  return multiplies_fp8(one.scenario()) && one.scenario().fp8.recipe == Fp8Recipe::delayed;
}

std::string why_scales_are_of_earlier_steps(const EngineCase& one) {
  return has_delayed_scales(one) ? "scales of fp8 are those of earlier steps" : "";
}

std::string why_no_two_halves(const EngineCase& one) {
  return has_two_halves(one.feed()) ? "" : "no pack has two documents with tokens";
}

std::string why_weights_move(const EngineCase& one) {
  const bool still = one.honours("feed.learning_rate") || one.feed().steps == 1;
  return still ? "" : "the learning rate is not honoured, so weights do not stand still";
}

bool is_honoured(const EngineCase& one, const Scenario& scenario) {
  return project(scenario, one.hello().honours).changes.empty();
}

EngineRun expect_base(EngineCase& one, const RunRequest& other, const std::string& choices,
                      const std::set<std::string>& kinds, bool padding_too) {
  const EngineRun& base = one.base();
  EngineRun run = one.run(other);
  one.expect_equal({.a = one.asked(), .b = other, .choices = choices, .padding_too = padding_too},
                   base, run, EngineCase::pairs_of(base, run, kinds));
  return run;
}

}  // namespace lockstep::foreign
