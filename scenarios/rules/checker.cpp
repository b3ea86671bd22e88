// L38..L40: delays, schedules, and what is expected.
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

using std::to_string;

bool has_stream(const Scenario& scenario, DelayStream stream) {
  switch (stream) {
    case DelayStream::d2h:
    case DelayStream::h2d:
      return with_offload(scenario);
    case DelayStream::gather:
    case DelayStream::reduce:
      return with_reduction(scenario);
    case DelayStream::graph:
      return with_graphs(scenario);
    default:
      return true;
  }
}

Findings delays_have_their_stream(const Scenario& scenario) {
  Findings findings;
  const std::int64_t ranks = all_ranks(scenario);
  for (std::size_t i = 0; i < scenario.checker.delays.size(); ++i) {
    const Scenario::Delay& delay = scenario.checker.delays[i];
    const std::string key = "checker.delays[" + to_string(i) + "]";
    if (!has_stream(scenario, delay.stream))
      findings.push_back({key + ".stream", "compute", word(delay.stream)});
    if (delay.rank && (*delay.rank < 0 || *delay.rank >= ranks)) {
      findings.push_back({key + ".rank", to_string(ranks - 1),
                          to_string(*delay.rank) + " of " + to_string(ranks)});
    }
  }
  return findings;
}

Findings program_has_one_schedule(const Scenario& scenario) {
  const auto& schedule = scenario.checker.schedule;
  if (schedule.kind != ScheduleKind::program || schedule.count == 1) return {};
  return {{"checker.schedule.kind", "random", "count " + to_string(schedule.count)}};
}

Findings expectations_go_together(const Scenario& scenario) {
  const auto& expect = scenario.expect;
  const std::string verdict = word(expect.verdict);
  const bool refused = expect.verdict == ExpectedVerdict::refused;
  const bool error = expect.error != "none", judge = expect.judge != "none";
  // Another verdict is legal only if nothing else stands there that it excludes.
  const auto give = [](bool alone, const char* key, const char* verdict_of_it,
                       const std::string& detail) {
    return alone ? Finding{"expect.verdict", verdict_of_it, detail} : Finding{key, "none", detail};
  };
  Findings findings;
  if (error && !refused) {
    const bool alone = !judge && expect.counters.empty();
    findings.push_back(
        give(alone, "expect.error", "refused", verdict + " with error " + expect.error));
  }
  if (judge && expect.verdict != ExpectedVerdict::violated) {
    const bool alone = !error && expect.counters.empty();
    findings.push_back(
        give(alone, "expect.judge", "violated", verdict + " with judge " + expect.judge));
  }
  if (!expect.counters.empty() && expect.verdict != ExpectedVerdict::holds) {
    findings.push_back({"expect.counters", "{}", verdict + " with counters"});
  }
  return findings;
}

Findings refused_needs_its_rule(const Scenario& scenario) {
  const auto& expect = scenario.expect;
  if (expect.verdict != ExpectedVerdict::refused || expect.error != "none") return {};
  return {{"expect.error", "the rule that refuses it, such as L17", ""}};
}

}  // namespace

std::span<const Rule> checker_rules() {
  static constexpr Rule kRules[] = {
      {"L38",
       "a delay needs its stream and rank: d2h, h2d with offload; gather, reduce with sharding or "
       "data > 1; graph "
       "with graphs",
       "would delay nothing", delays_have_their_stream,
       "checker.delays offload.modules fsdp.strategy parallel cuda_graph.impl",
       "checker: {delays: [{stream: d2h, spin: 1}]}"},
      {"L39", "kind program has one schedule", "the others would be the same",
       program_has_one_schedule, "checker.schedule.kind checker.schedule.count",
       "checker: {schedule: {kind: program, count: 9}}"},
      {"L40", "error goes with refused, judge with violated, counters with holds",
       "a refusal for another reason proves nothing", expectations_go_together, "expect",
       "expect: {error: L17}"},
      {"L40", "refused needs error", "a refusal for another reason proves nothing",
       refused_needs_its_rule, "expect.verdict expect.error", "expect: {verdict: refused}"},
  };
  return kRules;
}

}  // namespace lockstep
