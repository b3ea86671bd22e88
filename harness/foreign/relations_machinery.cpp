// R1 to R5: equal runs, and runs with a part of the machinery switched off.
#include <algorithm>

#include "harness/expect/expectations.h"
#include "harness/foreign/engine_failure.h"
#include "harness/foreign/relation_parts.h"
#include "kernels/core/at.h"
#include "scenarios/documents/layout.h"
#include "scenarios/pass_order.h"

namespace lockstep::foreign {
namespace {

// An engine that is asked for tensors of a microbatch may have to wait for its device, and so hide
// a race.
constexpr int kUnwatchedRuns = 6;
constexpr std::int64_t kMostRanksWithAVoice = 4;

void expect_equal_counters(const EngineRun& a, const EngineRun& b) {
  if (a.counters == b.counters) return;
  for (std::size_t rank = 0; rank < a.counters.size(); ++rank) {
    for (const auto& [name, value] : a.counters[rank]) {
      const auto other = b.counters.at(rank).find(name);
      if (other != b.counters[rank].end() && other->second == value) continue;
      const std::string there =
          other == b.counters[rank].end() ? "missing" : std::to_string(other->second);
      throw Violated{.judge = JudgeKind::counters,
                     .reason = "of two equal runs the counter " + name + " is " +
                               std::to_string(value) + " and " + there};
    }
  }
  throw Violated{.judge = JudgeKind::counters, .reason = "equal runs have other counters"};
}

// Tensors that differ between equal runs leave the other relations, unless the engine claims that
// there are none.
void expect_repeated(EngineCase& one, const RunRequest& again, const EngineRun& run,
                     const std::set<std::string>& kinds = {}) {
  const EngineRun& base = one.base();
  const std::vector<TensorPair> pairs = EngineCase::pairs_of(base, run, kinds);
  if (one.hello().deterministic) {
    one.expect_equal({.a = one.asked(), .b = again, .equal_runs = true}, base, run, pairs);
    expect_equal_counters(base, run);
    return;
  }
  for (const TensorPair& pair : one.differing(base, run, pairs, true)) one.leave_out(pair.a);
}

// Compares the scenario's sharding with none, on one feed. Returns the sharded run.
EngineRun compare_shardings(EngineCase& one, const EngineFeed& feed, const std::string& what,
                            const std::string& choices) {
  RunRequest sharded = one.asked_with(feed);
  sharded.what = what;
  RunRequest whole = variant(
      one,
      [](Scenario& s) {
        s.fsdp.strategy = Sharding::no_shard;
        s.fp8.param_gather = false;
      },
      what + ", no_shard");
  whole.feed = feed;
  EngineRun a = one.run(sharded);
  const EngineRun b = one.run(whole);
  one.expect_equal({.a = sharded, .b = whole, .choices = choices}, a, b,
                   EngineCase::pairs_of(a, b));
  return a;
}

bool gradients_differ(EngineCase& one, const EngineRun& a, const EngineRun& b) {
  return !one.differing(a, b, EngineCase::pairs_of(a, b, {"gradient"}), true).empty();
}

}  // namespace

std::string always(const EngineCase&) { return ""; }

void repeat(EngineCase& one, const Choices&) {
  const EngineRun& base = one.base();
  RunRequest again = one.asked();
  again.what = "the same run again";
  expect_repeated(one, again, one.run(again));
  again.observe = kinds_of_steps(one.hello());
  again.what = "the same run, less observed";
  const std::set<std::string> kinds(again.observe.begin(), again.observe.end());
  const bool watched = kinds.size() < one.hello().observes.size();
  for (int i = 0; i < kUnwatchedRuns && watched && !kinds.empty(); ++i)
    expect_repeated(one, again, one.run(again), kinds);
  if (one.repeats_in_fresh_processes()) {
    RunRequest fresh = one.asked();
    fresh.what = "the same run in fresh processes";
    expect_repeated(one, fresh, one.run_in_fresh_processes(fresh));
  }
  if (one.hello().observes_kind("gradient") && !base.has_gradient())
    throw NotApplicable(kNoGradient);
}

std::string has_graphs(const EngineCase& one) {
  const Scenario& scenario = one.scenario();
  if (scenario.cuda_graph.impl == GraphImpl::none) return "no graphs";
  if (graph_regions(scenario) == 0) return "no layer is captured";
  return graph_fit(scenario, one.feed()).replayed.most > 0 ? "" : "no microbatch fits a graph";
}

void graphs(EngineCase& one, const Choices&) {
  const RunRequest eager = variant(
      one,
      [](Scenario& s) {
        s.cuda_graph.impl = GraphImpl::none;
        s.cuda_graph.modules.clear();
        s.cuda_graph.evaluation = GraphEvaluation::eager;
        s.cuda_graph.shared_memory = false;
        s.cuda_graph.capture_passes = 0;
        s.training.recapture_at.clear();
        s.offload.delay_until_cuda_graph = s.offload.captured = false;
      },
      "the run without graphs");
  const EngineRun run = expect_base(one, eager);
  if (!one.counts("graph_replays")) return;
  if (one.base().counter("graph_replays") == 0) {
    if (graph_fit(one.scenario(), one.feed()).replayed.least == 0)
      throw NotApplicable("all ranks fell back where one did");
    throw_vacuous("graphs were asked for, and graph_replays is 0");
  }
  if (run.counter("graph_replays") != 0)
    throw_vacuous("without graphs graph_replays is " +
                  std::to_string(run.counter("graph_replays")));
}

std::string offloads(const EngineCase& one) {
  return one.scenario().offload.modules.empty() ? "nothing is offloaded" : "";
}

void offload(EngineCase& one, const Choices&) {
  const RunRequest resident = variant(
      one,
      [](Scenario& s) {
        s.offload.modules.clear();
        s.offload.delay_until_cuda_graph = s.offload.captured = false;
      },
      "the run without offloading");
  const EngineRun run = expect_base(one, resident);
  if (!one.counts("bytes_offloaded")) return;
  if (run.counter("bytes_offloaded") != 0)
    throw_vacuous("without offloading bytes_offloaded is " +
                  std::to_string(run.counter("bytes_offloaded")));
  if (one.base().counter("bytes_offloaded") == 0) throw NotApplicable("nothing was offloaded");
}

std::string recomputes(const EngineCase& one) {
  if (one.scenario().model.recompute.empty()) return "nothing is computed again";
  return one.hello().recompute_exact ? "" : "the engine does not claim recompute_exact";
}

void recompute(EngineCase& one, const Choices&) {
  const RunRequest saved = variant(
      one, [](Scenario& s) { s.model.recompute.clear(); }, "the run that computes nothing again");
  const EngineRun& base = one.base();
  const EngineRun run = one.run(saved);
  std::vector<TensorPair> pairs = EngineCase::pairs_of(base, run);
  std::erase_if(pairs,
                [](const TensorPair& pair) { return pair.a.kind.starts_with("activation"); });
  one.expect_equal({.a = one.asked(), .b = saved}, base, run, pairs);
}

std::string is_sharded(const EngineCase& one) {
  if (one.scenario().fsdp.strategy == Sharding::no_shard) return "nothing is sharded";
  const Scenario& scenario = one.scenario();
  const std::int64_t ranks = scenario.parallel.data;
  const bool experts = scenario.model.pattern.find('E') != std::string::npos;
  const Scenario::Model::Moe& moe = scenario.model.moe;
  const bool router_losses = moe.aux_loss.millionths > 0 || moe.z_loss.millionths > 0;
  if (ranks > 1 && experts && router_losses) return "losses of routers are summed over all ranks";
  return (ranks & (ranks - 1)) == 0 ? "" : "the number of ranks is no power of two";
}

void sharding(EngineCase& one, const Choices& choices) {
  const std::int64_t ranks = one.ranks();
  if (ranks == 1) {
    const EngineRun run = compare_shardings(one, one.feed(), "the run on one rank", "");
    if (!run.has_gradient()) throw NotApplicable(kNoGradient);
    return;
  }
  std::vector<EngineRun> runs;
  for (std::int64_t rank = 0; rank < std::min(ranks, kMostRanksWithAVoice); ++rank) {
    const std::string number = std::to_string(rank);
    if (!choices.takes("rank", number)) continue;
    const auto speaks = [&](const DocumentPlace& place) {
      return place.microbatch % ranks == rank;
    };
    runs.push_back(compare_shardings(one, with_voice(one.feed(), speaks),
                                     "the run in which rank " + number + " has targets",
                                     "rank=" + number));
  }
  const bool all_speak = std::all_of(runs.begin(), runs.end(),
                                     [](const EngineRun& run) { return run.has_gradient(); });
  if (!all_speak) throw NotApplicable("a rank has no target");
  if (runs.size() > 1 && !gradients_differ(one, runs[0], runs[1]))
    throw_vacuous("the gradients do not depend on which rank has targets");
}

std::string is_sharded_on_few_ranks(const EngineCase& one) {
  if (one.scenario().fsdp.strategy == Sharding::no_shard) return "nothing is sharded";
  const std::int64_t ranks = one.scenario().parallel.data;
  if (ranks > 2) return "more than two ranks add up in any order";
  std::size_t most = 0;
  for (const auto& [place, microbatches] : one.feed().packs)
    most = std::max(most, microbatches.size());
  return ranks == 1 || std::cmp_equal(most, ranks) ? "" : "several microbatches on two ranks";
}

std::string has_several_in_flight(const EngineCase& one) {
  const Scenario::Training& training = one.scenario().training;
  if (!one.honours("training.in_flight")) return "the number in flight is not honoured";
  if (depth_follows(one.scenario())) return "the schedule says how many are in flight";
  return training.in_flight > 1 || most_microbatches(training) > 1 ? ""
                                                                   : "one microbatch in a step";
}

void in_flight(EngineCase& one, const Choices&) {
  const RunRequest other = variant(
      one,
      [](Scenario& s) {
        s.training.in_flight = s.training.in_flight > 1 ? 1 : 2;
        s.training.resume_at.clear();
      },
      "the run with another number of microbatches in flight");
  if (!is_honoured(one, other.scenario))
    throw NotApplicable("the engine honours no other number in flight");
  expect_base(one, other);
}

void sharding_all(EngineCase& one, const Choices&) {
  compare_shardings(one, one.feed(), "the run as asked for", "");
}

}  // namespace lockstep::foreign
