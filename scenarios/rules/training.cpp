// L13, L14: the schedule of microbatches and steps.
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

Findings depth_is_reached(const Scenario& scenario) {
  const auto& training = scenario.training;
  const std::int64_t least = fewest_microbatches(training);
  if (training.in_flight <= least || depth_follows(scenario)) return {};
  return {{"training.in_flight", to_string(least),
           to_string(training.in_flight) + " of " + to_string(least)}};
}

// The steps that may stay: increasing, from `first` to the last one. A step out of range moves to
// its nearest place.
std::vector<std::int64_t> legal_steps(const std::vector<std::int64_t>& steps, std::int64_t first,
                                      std::int64_t last) {
  std::vector<std::int64_t> legal;
  for (const std::int64_t step : steps) {
    if (first > last) break;
    legal.push_back(std::clamp(step, first, last));
  }
  std::sort(legal.begin(), legal.end());
  legal.erase(std::unique(legal.begin(), legal.end()), legal.end());
  return legal;
}

Findings captures_have_a_step(const Scenario& scenario) {
  const auto& steps = scenario.training.recapture_at;
  if (steps.empty()) return {};
  if (!with_graphs(scenario)) return {{"training.recapture_at", "[]", "cuda_graph.impl none"}};
  const std::int64_t first = std::max<std::int64_t>(1, scenario.cuda_graph.warmup_steps + 1);
  const auto legal = legal_steps(steps, first, scenario.training.steps - 1);
  if (legal == steps) return {};
  return {{"training.recapture_at", list_text(legal),
           list_text(steps) + " of " + to_string(scenario.training.steps) + " steps, " +
               to_string(scenario.cuda_graph.warmup_steps) + " of them warm-up"}};
}

Findings changes_have_a_step(const Scenario& scenario) {
  const auto& changes = scenario.training.change_microbatches_at;
  std::vector<std::int64_t> steps;
  for (const auto& change : changes) steps.push_back(change.step);
  const auto legal = legal_steps(steps, 1, scenario.training.steps - 1);
  if (legal == steps) return {};
  std::vector<std::string> items;
  for (std::size_t i = 0; i < legal.size(); ++i) {
    items.push_back("{step: " + to_string(legal[i]) +
                    ", microbatches: " + to_string(changes[i].microbatches) + "}");
  }
  return {{"training.change_microbatches_at", list_text(items),
           "steps " + list_text(steps) + " of " + to_string(scenario.training.steps)}};
}

}  // namespace

std::span<const Rule> training_rules() {
  static constexpr Rule kRules[] = {
      {"L13", "in_flight must not exceed microbatches, changed counts included",
       "a depth that is never reached is vacuous", depth_is_reached,
       "training.in_flight training.microbatches training.change_microbatches_at "
       "parallel.chunks parallel.pipeline parallel.schedule",
       "training: {in_flight: 3}"},
      {"L14",
       "steps in recapture_at must increase, within 1..steps-1; it needs graphs and steps above "
       "warmup_steps",
       "nothing would happen", captures_have_a_step,
       "training.recapture_at training.steps cuda_graph.impl cuda_graph.warmup_steps",
       "training: {recapture_at: [3]}"},
      {"L14", "steps in change_microbatches_at must increase, within 1..steps-1",
       "nothing would happen", changes_have_a_step,
       "training.change_microbatches_at training.steps",
       "training: {change_microbatches_at: [{step: 3, microbatches: 2}]}"},
  };
  return kRules;
}

}  // namespace lockstep
