// R15: what the engine counts must be what the request asked for.
#include <algorithm>

#include "harness/expect/expectations.h"
#include "harness/expect/rank_counters.h"
#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/schema/words.h"

namespace lockstep::foreign {
namespace {

// The least and the most that a counter may be, over all ranks together.
constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
struct Bounds {
  std::int64_t least = 0, most = kAny;
};
using Rules = std::map<std::string, Bounds>;

Bounds exactly(std::int64_t value) { return {value, value}; }
Bounds at_least(std::int64_t value) { return {value, kAny}; }

// What the feed holds.
void add_feed(Rules& rules, const EngineFeed& feed, std::int64_t ranks) {
  std::int64_t microbatches = 0, tokens = 0, targets = 0, evaluations = 0;
  for (const auto& [place, packs] : feed.packs) {
    evaluations += place.evaluation ? ranks : 0;
    for (std::int64_t g = 0; g < std::ssize(packs) && !place.evaluation; ++g) {
      ++microbatches;
      for (const Document& document : at(packs, g).documents) {
        tokens += std::ssize(document.tokens);
        targets += std::count_if(document.targets.begin(), document.targets.end(),
                                 [](std::int32_t target) { return target >= 0; });
      }
    }
  }
  rules["microbatches"] = exactly(microbatches);
  rules["tokens"] = exactly(tokens);
  rules["tokens_of_all"] = exactly(tokens * ranks);
  rules["targets"] = exactly(targets);
  rules["evaluations"] = exactly(evaluations);
}

void add_graphs(Rules& rules, const EngineCase& one) {
  const Scenario& scenario = one.scenario();
  const GraphFit fit = graph_fit(scenario, one.feed());
  const bool asked = has_graphs(one).empty();
  // The rest of a step that was interrupted falls back too.
  if (scenario.training.resume_at.empty())
    rules["eager_fallbacks"] = {fit.too_large.least, fit.too_large.most};
  for (const char* name : {"graph_replays", "graphs_captured"})
    rules[name] = asked ? at_least(fit.replayed.least > 0 ? 1 : 0) : exactly(0);
  if (scenario.training.resume_at.empty())
    rules["recaptures"] = exactly(one.ranks() * std::ssize(scenario.training.recapture_at));
}

Rules rules_of(const EngineCase& one) {
  const Scenario& scenario = one.scenario();
  Rules rules;
  add_feed(rules, one.feed(), one.ranks());
  add_graphs(rules, one);
  const bool resumes = one.honours("training.resume_at");
  rules["resumes"] = exactly(resumes ? one.ranks() * std::ssize(scenario.training.resume_at) : 0);
  if (scenario.offload.modules.empty())
    rules["bytes_offloaded"] = rules["bytes_reloaded"] = exactly(0);
  if (one.ranks() > 1) rules["collectives"] = at_least(1);
  return rules;
}

// Names in counters_exact: what lockstep's own engine must count.
void add_described(Rules& rules, const EngineCase& one) {
  // The run that is described is never interrupted.
  if (one.hello().counters_exact.empty() || !one.scenario().training.resume_at.empty()) return;
  const std::unique_ptr<DataSource> data = open_data(one.scenario());
  for (const Expectation& expected : expectations(one.scenario(), *data)) {
    const std::string& name = to_text(expected.counter);
    if (!one.hello().counters_exact.contains(name)) continue;
    // Several may speak of one counter, and all must hold.
    Bounds& bounds = rules[name];
    bounds = {std::max(bounds.least, expected.min), std::min(bounds.most, expected.max)};
  }
}

// The engine's counters as those of one run: what all ranks must agree on is counted once.
Counters counters_of_run(const EngineRun& run) {
  std::vector<Counters> ranks;
  for (const auto& of_a_rank : run.counters) {
    Counters& known = ranks.emplace_back();
    for (const auto& [name, value] : of_a_rank) {
      if (const std::optional<Counter> counter = counter_from_text(name)) known[*counter] = value;
    }
  }
  return merged(ranks, true);
}

// What the file expects beside what follows from the scenario.
void require_expected(const EngineCase& one, const Counters& whole) {
  if (!one.scenario().training.resume_at.empty()) return;
  for (const auto& [counter, rule] : one.expected_counters()) {
    const auto is_exact = [&](Counter name) {
      return whole.contains(name) && one.hello().counters_exact.contains(to_text(name));
    };
    if (!is_exact(counter) || (rule.same_as && !is_exact(*rule.same_as))) continue;
    const std::string why = unmet({{counter, rule}}, whole);
    if (!why.empty()) throw Violated{.judge = JudgeKind::counters, .reason = why};
  }
}

void require_within(const std::string& name, std::int64_t value, const Bounds& bounds) {
  if (value >= bounds.least && value <= bounds.most) return;
  // What was asked for and did not happen at all was not tested.
  throw Violated{.judge = value == 0 && bounds.least > 0 ? JudgeKind::vacuous : JudgeKind::counters,
                 .reason = name + " is " + std::to_string(value) + ", expected " +
                           range_text(bounds.least, bounds.most)};
}

void require_outstanding(const EngineCase& one, const EngineRun& run) {
  const Scenario::Training& training = one.scenario().training;
  const std::int64_t most = std::min(training.in_flight, most_microbatches(training));
  for (const auto& counters : run.counters) {
    const auto found = counters.find("max_outstanding");
    if (found == counters.end()) continue;
    const bool exact = one.honours("training.in_flight") &&
                       one.scenario().cuda_graph.impl != GraphImpl::full_iteration &&
                       training.resume_at.empty();
    if (found->second == most || (!exact && found->second < most)) continue;
    throw Violated{.judge = JudgeKind::counters,
                   .reason = "max_outstanding is " + std::to_string(found->second) + ", expected " +
                             range_text(exact ? most : 0, most)};
  }
}

}  // namespace

std::string has_counters(const EngineCase& one) {
  return one.hello().counts.empty() ? "the engine counts nothing" : "";
}

void counters(EngineCase& one, const Choices&) {
  const EngineRun& base = one.base();
  for (const auto& [name, how] : one.hello().counts) {
    for (const auto& counted : base.counters) {
      if (!counted.contains(name))
        throw EngineFailure(JudgeKind::protocol, "the engine's reply: no counter " + name);
    }
  }
  Rules described;
  add_described(described, one);
  const Counters whole = counters_of_run(base);
  for (const auto& [counter, value] : whole) {
    const auto bounds = described.find(to_text(counter));
    if (bounds != described.end()) require_within(to_text(counter), value, bounds->second);
  }
  require_expected(one, whole);
  for (const auto& [name, bounds] : rules_of(one)) {
    if (one.counts(name)) require_within(name, base.counter(name), bounds);
  }
  require_outstanding(one, base);
  const bool both = one.counts("bytes_offloaded") && one.counts("bytes_reloaded");
  if (both && base.counter("bytes_offloaded") != base.counter("bytes_reloaded"))
    throw Violated{.judge = JudgeKind::counters,
                   .reason = "bytes_reloaded is " + std::to_string(base.counter("bytes_reloaded")) +
                             ", expected " + std::to_string(base.counter("bytes_offloaded")) +
                             ", what was offloaded"};
}

}  // namespace lockstep::foreign
