// Properties that the bits may not depend on, asked of random scenarios: the engine against itself,
// with no oracle. document_invariance_test.cpp asks about documents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/generate/generator.h"
#include "harness/inject/fault_injector.h"
#include "scenarios/documents/layout.h"
#include "scenarios/fp8.h"
#include "scenarios/io/reader.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"
#include "scenarios/rules/offload_modules.h"
#include "tests/engine/train/training_run.h"
#include "tests/harness/generate/random_property.h"

namespace lockstep {
namespace {

using test::Outcome;

constexpr int kScenarios = 10;  // For one property.

bool has_graphs(const Scenario& s) { return s.cuda_graph.impl != GraphImpl::none; }

// ---- What may change ----------------------------------------------------------------------------

// L43
void take_passes(Scenario& s, std::int64_t passes) {
  s.cuda_graph.capture_passes = passes;
  if (!check_legality(s).empty()) s.cuda_graph.capture_passes = 0;
}

// As many documents as a pack may have, but cuDNN's workspace takes 64 kB for each and head.
std::int64_t large_capacity(const Scenario& s) {
  return s.model.core_attention == CoreAttention::cudnn ? 512 : 4096;
}

void take_another_capacity(Scenario& s, Choices& c) {
  if (!has_graphs(s)) return;
  const std::int64_t largest = s.cuda_graph.max_packed_seqs.back(), large = large_capacity(s);
  s.cuda_graph.max_packed_seqs =
      c.pick<std::vector<std::int64_t>>({{largest + 1},
                                         {largest, largest + 9},
                                         {largest, largest + 1, std::max(2 * large, largest + 2)},
                                         {large}});
  s.cuda_graph.max_seqlen.reset();
  s.cuda_graph.graph_memory_limit = c.pick<std::int64_t>({0, 1, 100'000});
  take_passes(s, s.cuda_graph.capture_passes);
}

void take_another_number_of_passes(Scenario& s, Choices& c) {
  take_passes(s, s.cuda_graph.capture_passes > 0 ? 0 : c.between(1, 3));
}

// Experts whose sizes the host reads stay out of graphs; their router goes in.
bool has_dynamic_shapes(const Scenario& s) {
  return s.model.pattern.find('E') != std::string::npos && s.model.moe.host_sync;
}

void take_other_graphs(Scenario& s, GraphImpl impl) {
  const bool router = impl != GraphImpl::none && has_dynamic_shapes(s);
  s.cuda_graph.impl = router ? GraphImpl::partial : impl;
  s.cuda_graph.modules.clear();
  if (router) s.cuda_graph.modules = {GraphModule::moe_router};
  s.cuda_graph.warmup_steps = 1;
  s.cuda_graph.max_packed_seqs = {large_capacity(s)};
  s.cuda_graph.max_seqlen.reset();
  s.cuda_graph.evaluation = GraphEvaluation::eager;
  s.cuda_graph.capture_passes = 0;
  s.cuda_graph.shared_memory = false;  // L45
  s.training.recapture_at.clear();
}
void switch_graphs(Scenario& s, Choices&) {
  take_other_graphs(s, has_graphs(s) ? GraphImpl::none : GraphImpl::partial);
  test::leave_out_what_is_refused(s);
}
void take_the_other_kind_of_graphs(Scenario& s, Choices&) {
  take_other_graphs(
      s, s.cuda_graph.impl == GraphImpl::partial ? GraphImpl::full_iteration : GraphImpl::partial);
  s.training.recapture_at = {2};
  test::leave_out_what_is_refused(s);
}

bool has_module(const Scenario& s, OffloadModule module) {
  return std::find(s.offload.modules.begin(), s.offload.modules.end(), module) !=
         s.offload.modules.end();
}

bool recomputes(const Scenario& s, Recompute module) {
  const std::vector<Recompute>& list = s.model.recompute;
  return std::find(list.begin(), list.end(), module) != list.end();
}

// L27
bool is_computed_again(const Scenario& s, OffloadModule module) {
  switch (module) {
    case OffloadModule::attn_proj:
      return recomputes(s, Recompute::core_attn);
    case OffloadModule::mamba_scan:
      return recomputes(s, Recompute::mamba);
    case OffloadModule::expert_fc1:
    case OffloadModule::moe_act:
      return recomputes(s, Recompute::moe);
    default:
      break;
  }
  return recomputes(s, Recompute::layernorm) && offload_row(module).kept == Kept::norm_output;
}

// Any modules, fraction, pool, limit, delay and nodes; none where there is no warm-up.
void take_another_offloading(Scenario& s, Choices& c) {
  s.offload = {};
  std::erase_if(s.checker.delays, [](const Scenario::Delay& delay) {
    return delay.stream == DelayStream::d2h || delay.stream == DelayStream::h2d;
  });
  if (!has_graphs(s) || s.cuda_graph.warmup_steps > 0) {
    for (const OffloadModule module : offloadable_modules(s)) {
      if (c.one_in(2) && !is_computed_again(s, module)) s.offload.modules.push_back(module);
    }
  }
  if (!has_module(s, OffloadModule::core_attn))
    std::erase(s.offload.modules, OffloadModule::attn_proj);
  if (s.offload.modules.empty()) return;
  s.offload.fraction = Ratio{c.pick<std::int64_t>({1'000'000, 0, 500'000, 333'333, 800'000})};
  s.offload.min_bytes = c.pick<std::int64_t>({0, 1'000, 5'000});
  s.offload.pool_slack = c.between(0, 3);
  if (s.cuda_graph.impl == GraphImpl::full_iteration || c.one_in(2))
    s.offload.max_inflight = c.between(0, 5);
  s.offload.delay_until_cuda_graph = c.one_in(2);
  if (!check_legality(s).empty()) s.offload.delay_until_cuda_graph = false;
  s.offload.captured = captures_copies(s) && c.one_in(2);
  if (s.offload.captured) s.offload.pool_slack = 0;
}

// Norms only where their outputs do not move.
void take_another_recomputation(Scenario& s, Choices& c) {
  s.model.recompute.clear();
  const auto& modules = s.offload.modules;
  const bool moves = std::any_of(modules.begin(), modules.end(), [](OffloadModule module) {
    return offload_row(module).kept == Kept::norm_output;
  });
  if (!moves && !c.one_in(3)) s.model.recompute.push_back(Recompute::layernorm);
  const auto has = [&](char symbol) { return s.model.pattern.find(symbol) != std::string::npos; };
  if (has('-') && !c.one_in(3)) s.model.recompute.push_back(Recompute::mlp_act);
  if (has('E') && !c.one_in(3)) s.model.recompute.push_back(Recompute::moe_act);
  if (multiplies_fp8(s)) s.fp8.save_original_input = implied_original_inputs(s.model);
}

void take_another_recapture(Scenario& s, Choices& c) {
  if (!has_graphs(s)) return;
  const std::int64_t first = s.cuda_graph.warmup_steps + 1, last = s.training.steps - 1;
  const bool had = !s.training.recapture_at.empty();
  s.training.recapture_at.clear();
  if (!had && first <= last) s.training.recapture_at = {c.between(first, last)};
}

void take_another_depth(Scenario& s, Choices& c) {
  s.training.in_flight = c.between(1, fewest_microbatches(s.training));
  take_passes(s, s.cuda_graph.capture_passes);
}

// Where they are legal and built.
void take_chunks(Scenario& s, Choices& c) {
  const Scenario before = s;
  const std::int64_t blocks = std::ssize(s.blocks());
  s.parallel.chunks = blocks > 1 ? c.between(2, std::min<std::int64_t>(blocks, 4)) : 1;
  s.parallel.group = blocks > 1 ? c.between(1, fewest_microbatches(s.training)) : 1;
  const bool gpipe = blocks == 1 || c.one_in(2);
  s.parallel.schedule = gpipe ? PipelineSchedule::gpipe : PipelineSchedule::interleaved;
  s.training.in_flight = scheduled_depth(s);
  take_passes(s, s.cuda_graph.capture_passes);
  const bool is_refused = !check_legality(s).empty() || !check_built(s).empty();
  if (is_refused) s = before;
}

void change_nothing(Scenario&, Choices&) {}

Outcome run_it(const Scenario& s, const DataSource& data, Choices&) { return test::run(s, data); }
Outcome run_on_another_schedule(const Scenario& s, const DataSource& data, Choices& c) {
  using Policy = SimOptions::Policy;
  const auto seed = static_cast<std::uint64_t>(c.between(2, 1000));
  return test::run(
      s, data,
      {.policy = c.pick<Policy>({Policy::random, Policy::program, Policy::lazy, Policy::pct}),
       .seed = seed,
       .depth = static_cast<int>(c.between(1, 3))});
}
Outcome run_at_other_addresses(const Scenario& s, const DataSource& data, Choices& c) {
  return test::run(s, data, {}, nullptr, static_cast<std::size_t>(c.between(1, 1'000'000)));
}
Outcome save_and_resume(const Scenario& s, const DataSource& data, Choices& c) {
  return test::run_resumed(s, data, c.between(1, s.training.steps - 1));
}

struct Change {
  void (*edit)(Scenario&, Choices&);
  Outcome (*run)(const Scenario&, const DataSource&, Choices&);
};
constexpr Change kCapacity{take_another_capacity, run_it}, kGraphs{switch_graphs, run_it},
    kKindOfGraphs{take_the_other_kind_of_graphs, run_it}, kDepth{take_another_depth, run_it},
    kOffloading{take_another_offloading, run_it}, kChunks{take_chunks, run_it},
    kRecapture{take_another_recapture, run_it},
    kPassesOfCaptures{take_another_number_of_passes, run_it},
    kRecomputation{take_another_recomputation, run_it},
    kSchedule{change_nothing, run_on_another_schedule},
    kAddresses{change_nothing, run_at_other_addresses}, kResumed{change_nothing, save_and_resume};

// ---- The property -------------------------------------------------------------------------------

struct Compared {
  Scenario before, after;
  std::string refused;     // The changed scenario is not legal: the change is wrong.
  std::string difference;  // "" for none.
};

// Steps for a warm-up, a second capture and a resumed run.
Scenario with_steps(Scenario s) {
  s.training.steps = std::max<std::int64_t>(3, s.training.steps);
  s.training.resume_at.clear();  // A change of microbatches may leave them no place.
  return s;
}

enum class Precision : std::uint8_t { drawn, fp8 };

Scenario draw(Choices& choices, Precision precision = Precision::drawn) {
  Scenario drawn = with_steps(test::on_one_rank(generate_scenario(choices)));
  drawn.numerics.resize(1);
  return precision == Precision::fp8 ? test::in_fp8(drawn, choices) : drawn;
}

// In fp8 each change that is compared changes something.
Compared compare(const Change& change, Choices& choices, Precision precision = Precision::drawn) {
  Compared result;
  result.before = draw(choices, precision);
  if (precision == Precision::fp8 && !check_legality(result.before).empty())
    throw test::NothingToCompare{};
  result.after = result.before;
  change.edit(result.after, choices);
  if (precision == Precision::fp8 && change.edit != change_nothing)
    test::require_another(result.before, result.after);
  const std::vector<ScenarioError> errors = check_legality(result.after);
  if (!errors.empty()) {
    result.refused = errors.front().text();
    return result;
  }
  const auto data = open_data(result.before);
  const Outcome want = test::run(result.before, *data);
  result.difference = test::difference(want, change.run(result.after, *data, choices));
  return result;
}

void hold(const std::string& claim, const Change& change) {
  for (const Precision precision : {Precision::drawn, Precision::fp8}) {
    const char* const of = precision == Precision::fp8 ? " (fp8)" : "";
    test::hold(claim + of, [&](Choices& choices) {
      const Compared result = compare(change, choices, precision);
      const std::string wrong = result.refused + result.difference;
      return wrong.empty()
                 ? ""
                 : wrong + "\n" + to_yaml(result.before) + "# changed to\n" + to_yaml(result.after);
    });
  }
}

class Invariance : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::draw_at_most(kScenarios); }
};

TEST_F(Invariance, NothingDependsOnCapacity) { hold("nothing depends on capacity", kCapacity); }
TEST_F(Invariance, NothingDependsOnGraphs) { hold("nothing depends on graphs", kGraphs); }
TEST_F(Invariance, NothingDependsOnTheKindOfGraphs) {
  hold("nothing depends on the kind of graphs", kKindOfGraphs);
}
TEST_F(Invariance, NothingDependsOnInFlightDepth) {
  hold("nothing depends on in-flight depth", kDepth);
}
TEST_F(Invariance, NothingDependsOnChunksAndTheOrderOfTheirPasses) {
  hold("nothing depends on chunks", kChunks);
}
TEST_F(Invariance, NothingDependsOnThePassesOfCaptures) {
  hold("nothing depends on the passes of captures", kPassesOfCaptures);
}
TEST_F(Invariance, NothingDependsOnRecaptures) {
  hold("nothing depends on recaptures", kRecapture);
}
TEST_F(Invariance, NothingDependsOnOffloading) {
  hold("nothing depends on offloading", kOffloading);
}
TEST_F(Invariance, NothingDependsOnRecomputation) {
  hold("nothing depends on recomputation", kRecomputation);
}
TEST_F(Invariance, NothingDependsOnTheScheduleOfStreams) {
  hold("nothing depends on the schedule", kSchedule);
}
TEST_F(Invariance, NothingDependsOnTheAddressesOfBuffers) {
  hold("nothing depends on addresses", kAddresses);
}
TEST_F(Invariance, NothingDependsOnWhereARunWasSavedAndResumed) {
  hold("nothing depends on resuming", kResumed);
}

// Rare draws: one of several ranks in fifty once made a scenario that no property could run.
TEST(Changes, AreLegalWhateverIsDrawn) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    for (const Change& change : {kCapacity, kGraphs, kKindOfGraphs, kDepth, kOffloading, kChunks,
                                 kPassesOfCaptures, kRecomputation, kSchedule}) {
      Choices choices(seed);
      Scenario s = draw(choices);
      const std::string drawn = to_yaml(s);
      change.edit(s, choices);
      const std::vector<ScenarioError> errors = check_legality(s);
      ASSERT_TRUE(errors.empty()) << errors.front().text() << "\n"
                                  << drawn << "# changed to\n"
                                  << to_yaml(s);
    }
  }
}

// ---- And it can fail ----------------------------------------------------------------------------

bool is_seen(const char* fault, const Change& change) {
  test::make_interceptor = planted_alias;
  return test::is_seen(fault,
                       [&](Choices& choices) { return compare(change, choices).difference; });
}

TEST_F(Invariance, IsBrokenByPlantedFaults) {
  EXPECT_TRUE(is_seen("fallback-truncates-to-capacity", kCapacity));
  EXPECT_TRUE(is_seen("replay-skipped-once", kGraphs));
  EXPECT_TRUE(is_seen("replay-runs-twice", kKindOfGraphs));
  EXPECT_TRUE(is_seen("metadata-shared-by-slots", kDepth));
  EXPECT_TRUE(is_seen("reload-takes-another-slot", kOffloading));
  EXPECT_TRUE(is_seen("backward-passes-of-a-chunk-swapped", kChunks));
  EXPECT_TRUE(is_seen("capture-passes-leave-their-gradients", kPassesOfCaptures));
  EXPECT_TRUE(is_seen("recompute-of-norms-left-out", kRecomputation));
  EXPECT_TRUE(is_seen("compute-ignores-loaded-event", kSchedule));
  EXPECT_TRUE(is_seen("gradients-not-zeroed-at-step-start", kResumed));
  EXPECT_FALSE(is_seen("", kGraphs));
}

}  // namespace
}  // namespace lockstep
