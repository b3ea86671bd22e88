#include "harness/expect/run_expectations.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "harness/expect/graph_memory.h"
#include "harness/expect/offload_bytes.h"
#include "harness/expect/sharding_plan.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// Bytes that a layer's experts of a rank move to the host in a microbatch in which they keep so
// many pairs.
std::int64_t bytes_of(const OffloadDemand& demand, int layer, std::int64_t kept,
                      std::int64_t experts) {
  const auto in = [&](const std::map<int, std::int64_t>& bytes) {
    const auto found = bytes.find(layer);
    return found == bytes.end() ? 0 : found->second;
  };
  return kept * in(demand.per_pair) + columns_of_codes(kept, experts) * in(demand.per_column);
}

// The oracle's routing decides how many rows each expert has.
void expect_routing(const Scenario& scenario, std::span<const oracle::StepResult> steps,
                    std::vector<Expectation>& expected) {
  std::int64_t pairs = 0, dropped = 0, microbatches = 0, bytes_of_rows = 0;
  const OffloadDemand demand = offload_demand(scenario);
  std::set<std::tuple<std::int64_t, int, std::size_t>> used;  // By each rank.
  const std::int64_t ranks = scenario.parallel.data, apart = expert_ranks(scenario);
  for (const oracle::StepResult& step : steps) {
    // By layer, microbatch of a rank, replica of the experts and expert rank.
    std::map<std::array<std::int64_t, 4>, std::int64_t> kept;
    for (std::int64_t m = 0; m < std::ssize(step.microbatches); ++m) {
      ++microbatches;
      for (const oracle::ExpertStatistics<float>& layer : at(step.microbatches, m).experts) {
        const std::int64_t own = std::ssize(layer.chosen) / apart;
        for (std::int64_t e = 0; e < std::ssize(layer.chosen); ++e) {
          pairs += layer.chosen[e];
          dropped += layer.dropped[e];
          kept[{layer.layer, m / ranks, m % ranks / apart, e / own}] +=
              layer.chosen[e] - layer.dropped[e];
          if (layer.chosen[e] > 0) used.insert({m % ranks, layer.layer, e});
        }
      }
    }
    for (const auto& [owner, rows] : kept)
      bytes_of_rows +=
          bytes_of(demand, static_cast<int>(owner[0]), rows, scenario.model.moe.experts);
  }
  const std::int64_t experts = std::ssize(used);
  expected.push_back({Counter::pairs_routed, pairs, pairs, "the oracle's count"});
  expected.push_back({Counter::tokens_dropped, dropped, dropped, "the oracle's count"});
  expected.push_back({Counter::experts_used, experts, experts, "the oracle's count"});
  if (!demand.follows_the_data()) return;
  const std::int64_t bytes = demand.fixed * microbatches + bytes_of_rows;
  for (const Counter counter :
       {Counter::bytes_planned, Counter::bytes_offloaded, Counter::bytes_reloaded}) {
    expected.push_back({counter, bytes, bytes, "rows that the oracle's experts have"});
  }
}

std::int64_t least(const std::vector<Expectation>& expected, Counter counter) {
  const auto found = std::ranges::find(expected, counter, &Expectation::counter);
  return found == expected.end() ? 0 : found->min;
}

void expect_checker(const Scenario& scenario, const DataSource& data, const CheckerEvidence& seen,
                    std::vector<Expectation>& expected) {
  expected.push_back(
      {.counter = Counter::hazards_checked, .min = 1, .why = "checker.hazards is true"});
  // A process sees its own stage alone.
  const std::int64_t stages = scenario.parallel.pipeline;
  const bool sees_all = stages == 1 || seen.ranks == ranks_of_run(scenario);
  const std::int64_t replicas = seen.ranks / stages;
  if (!sees_all) return;
  // All ranks launch alike. A launch too many also counts the recomputed ops of its graph and the
  // like once more, so the launches come before those.
  const auto behind = std::find_if(expected.rbegin(), expected.rend(), [](const Expectation& one) {
    return one.counter == Counter::graph_replays;
  });
  expected.insert(behind == expected.rend() ? expected.begin() : behind.base(),
                  {.counter = Counter::graph_replays,
                   .min = (seen.launches + replicas - 1) / replicas,
                   .max = seen.launches / replicas,
                   .why = "so many launches of a rank were seen at the device door"});
  if (scenario.cuda_graph.graph_memory_limit == 0) return;  // The documents alone decide.
  const ShardingPlan plan = plan_sharding(scenario);
  std::vector<std::int64_t> of_a_bucket(stages);
  std::int64_t others = least(expected, Counter::collectives);
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    at(of_a_bucket, stage) = collectives_of_capture(scenario, plan, stage);
    others -= at(of_a_bucket, stage) * tally_graphs(scenario, data, {}, stage).buckets;
  }
  // The stages of each replica of the model together.
  struct Sums {
    std::int64_t captured = 0, evicted = 0, passes = 0, exchanges = 0;
  };
  std::map<std::int64_t, Sums> of_replicas;
  for (const auto& [rank, calls] : seen.captured_calls) {
    const std::int64_t stage = rank / scenario.parallel.data;
    const GraphTally tally = tally_graphs(scenario, data, calls, stage);
    Sums& sums = of_replicas[rank % scenario.parallel.data];
    sums.captured += tally.captured;
    sums.evicted += tally.evicted;
    sums.passes += passes_of_captures(scenario, tally.buckets, stage);
    sums.exchanges += tally.buckets * at(of_a_bucket, stage);
  }
  for (const auto& [replica, sums] : of_replicas) {
    const auto expect = [&](Counter counter, std::int64_t value) {
      expected.push_back(
          {counter, value, value,
           "cuda_graph.graph_memory_limit, and the sizes of graphs seen at the device door"});
    };
    expect(Counter::graphs_captured, sums.captured);
    expect(Counter::graphs_evicted, sums.evicted);
    expect(Counter::capture_passes, sums.passes);
    expect(Counter::collectives, others + sums.exchanges);
  }
}

// Whether the ranks' stages put anything on the stream: one may capture or offload nothing.
bool is_used(const Scenario& scenario, DelayStream stream, std::int64_t first, std::int64_t end) {
  const std::int64_t stages = scenario.parallel.pipeline;
  std::set<std::int64_t> with;
  if (stream == DelayStream::graph) {
    const std::vector<std::int64_t> of_layers = stages_of_layers(scenario);
    for (const Scenario::Block& block : scenario.blocks()) {
      for (const int layer : captured_symbols(scenario, block)) with.insert(at(of_layers, layer));
    }
  } else if (stream == DelayStream::d2h || stream == DelayStream::h2d) {
    for (const auto& [piece, bytes] : offload_demand(scenario).sizes) with.insert(piece % stages);
  } else {
    return true;
  }
  return std::ranges::any_of(with, [&](std::int64_t stage) {
    const std::int64_t data = scenario.parallel.data;
    return first < (stage + 1) * data && stage * data < end;
  });
}

}  // namespace

std::vector<Expectation> expectations_of_run(const Scenario& scenario, const DataSource& data,
                                             const RunEvidence& evidence) {
  std::vector<Expectation> expected = expectations(scenario, data);
  if (evidence.oracle_steps) expect_routing(scenario, *evidence.oracle_steps, expected);
  if (evidence.explored) {
    expected.push_back({.counter = Counter::schedules_explored,
                        .min = scenario.checker.schedule.count,
                        .why = "checker.schedule.count"});
  }
  if (!scenario.checker.delays.empty()) {
    expected.push_back({.counter = Counter::delays_applied, .min = 1, .why = "checker.delays"});
  }
  if (evidence.checker) expect_checker(scenario, data, *evidence.checker, expected);
  const std::pair<Poison, Counter> kinds[] = {{Poison::fresh, Counter::bytes_poisoned},
                                              {Poison::padding, Counter::bytes_poisoned_padding},
                                              {Poison::staging, Counter::bytes_poisoned_staging}};
  for (const auto& [kind, counter] : kinds) {
    if (holds(scenario.checker.poison, kind))
      expected.push_back({.counter = counter, .min = 1, .why = "checker.poison"});
  }
  return expected;
}

std::string idle_delay(const Scenario& scenario, const std::vector<bool>& delayed,
                       const RanksOfProcess& ranks) {
  const std::vector<Scenario::Delay>& delays = scenario.checker.delays;
  for (std::size_t i = 0; i < delays.size(); ++i) {
    const std::int64_t rank = delays[i].rank.value_or(-1);
    const bool of_others = rank >= 0 && (rank < ranks.first || rank >= ranks.first + ranks.count);
    if (of_others || delayed[i]) continue;
    const std::int64_t first = rank < 0 ? ranks.first : rank,
                       end = rank < 0 ? ranks.first + ranks.count : rank + 1;
    if (scenario.parallel.pipeline > 1 && !is_used(scenario, delays[i].stream, first, end))
      continue;
    return "checker.delays[" + std::to_string(i) + "] delayed nothing (stream " +
           word(delays[i].stream) + (rank < 0 ? ")" : ", rank " + std::to_string(rank) + ")");
  }
  return "";
}

}  // namespace lockstep
