// Equalities of fp8 numerics, asked of random scenarios: the keys of fp8 that change no bit, ranks,
// and what the two recipes share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "harness/generate/generator.h"
#include "harness/generate/parts.h"
#include "scenarios/fp8.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"
#include "tests/engine/fsdp/sharded_run.h"
#include "tests/harness/generate/random_property.h"

namespace lockstep {
namespace {

using test::Outcome;

constexpr int kScenarios = 10;  // For one property.

// A random scenario of one rank in fp8, without what the properties change.
Scenario draw(Choices& c) {
  Scenario s = test::on_one_rank(generate_scenario(c));
  s.training.resume_at.clear();
  s.fsdp = {};
  return test::in_fp8(s, c);
}

// ---- What may change ----------------------------------------------------------------------------

void save_other_inputs(Scenario& s, Choices& c) {
  s.fp8.save_original_input = implied_original_inputs(s.model);
  for (int i = 0; i <= static_cast<int>(Fp8Layer::shared_fc2); ++i) {
    const auto layer = static_cast<Fp8Layer>(i);
    const bool is_free = has_fp8_layer(s.model, layer) && !holds(s.fp8.save_original_input, layer);
    if (is_free && c.one_in(2)) s.fp8.save_original_input.push_back(layer);
  }
  std::ranges::sort(s.fp8.save_original_input);
}

void recompute_others(Scenario& s, Choices& c) {
  using enum Recompute;
  s.offload = {};
  s.model.recompute.clear();
  const auto add = [&](char symbol, Recompute part, Recompute whole) {
    if (!has_layer(s, symbol)) return;
    const std::uint64_t drawn = c.draw(3);
    if (drawn == 1) s.model.recompute.push_back(part);
    if (drawn == 2) s.model.recompute.push_back(whole);
  };
  if (c.one_in(2)) s.model.recompute.push_back(layernorm);
  add('-', mlp_act, mlp);
  add('E', moe_act, moe);
  add('*', core_attn, core_attn);
  add('M', mamba, mamba);
  std::ranges::sort(s.model.recompute);
  s.fp8.save_original_input = implied_original_inputs(s.model);
  test::leave_out_what_is_refused(s);
}

void quantise_in_each_pass(Scenario& s, Choices&) { s.fp8.weight_cache = false; }

void shard(Scenario& s, Choices& c) {
  s.fsdp.strategy =
      c.pick<Sharding>({Sharding::optim_grads, Sharding::optim_grads_params, Sharding::optim});
  s.fp8.weight_cache = default_weight_cache(s);
  test::leave_out_what_is_refused(s);
}

void gather_codes(Scenario& s, Choices&) {
  s.fp8.param_gather = true;
  s.fp8.weight_cache = true;
}

// Each has a part of the blocks.
void cut_into_stages(Scenario& s, Choices& c) {
  const std::int64_t blocks = std::ssize(s.blocks());
  if (blocks < 2) return;
  s.parallel.pipeline = s.parallel.group = c.between(2, std::min<std::int64_t>(blocks, 4));
  if (c.one_in(2)) s.parallel.schedule = PipelineSchedule::gpipe;
  s.training.in_flight = scheduled_depth(s);
  s.cuda_graph.shared_memory = false;
  test::leave_out_what_is_refused(s);
}

// Ranks divide the microbatches; there are at least two of each step's.
Scenario with_even_microbatches(Scenario s) {
  s.training.microbatches *= 2;
  for (auto& change : s.training.change_microbatches_at) change.microbatches *= 2;
  s.fsdp.strategy = Sharding::optim_grads;
  return s;
}
void share_with_another_rank(Scenario& s, Choices& c) {
  if (c.one_in(2)) s.fsdp.strategy = Sharding::optim_grads_params;
  s.fp8.param_gather = c.one_in(2);
  s.fp8.weight_cache = default_weight_cache(s);
  s.parallel.data = 2;
  s.training.microbatches /= 2;
  for (auto& change : s.training.change_microbatches_at) change.microbatches /= 2;
  s.training.in_flight = std::min(s.training.in_flight, fewest_microbatches(s.training));
}

// ---- The property -------------------------------------------------------------------------------

// Runs both; "" where nothing differs.
std::string difference(const Scenario& before, const Scenario& after, bool whole = false) {
  test::require_another(before, after);
  const auto data = open_data(before);
  const auto run = [&](const Scenario& s) {
    Outcome outcome = whole ? test::run_whole(s, *data) : test::run(s, *data);
    return outcome;
  };
  const std::string found = test::difference(run(before), run(after));
  return found.empty() ? "" : found + "\n" + to_yaml(before) + "# changed to\n" + to_yaml(after);
}

using Edit = void (*)(Scenario&, Choices&);

std::string after(Edit edit, Choices& c) {
  const Scenario before = draw(c);
  Scenario after = before;
  edit(after, c);
  return difference(before, after);
}
void hold(const char* claim, Edit edit) {
  test::hold(claim, [&](Choices& c) { return after(edit, c); });
}

std::string gathered_codes(Choices& c) {
  Scenario weights = draw(c);
  shard(weights, c);
  Scenario codes = weights;
  gather_codes(codes, c);
  return difference(weights, codes);
}
std::string stages(Choices& c) {
  const Scenario one = draw(c);
  Scenario several = one;
  cut_into_stages(several, c);
  return difference(one, several, true);
}

class Fp8Invariance : public testing::Test {
 protected:
  static void SetUpTestSuite() { test::draw_at_most(kScenarios); }
};

TEST_F(Fp8Invariance, NothingDependsOnSavedInputs) {
  hold("nothing depends on save_original_input", save_other_inputs);
}
TEST_F(Fp8Invariance, NothingDependsOnRecomputation) {
  hold("nothing depends on recompute", recompute_others);
}
TEST_F(Fp8Invariance, NothingDependsOnTheWeightCache) {
  hold("nothing depends on weight_cache", quantise_in_each_pass);
}
TEST_F(Fp8Invariance, NothingDependsOnShardsOfOneRank) { hold("nothing depends on shards", shard); }
TEST_F(Fp8Invariance, NothingDependsOnGatheredCodes) {
  test::hold("nothing depends on param_gather", gathered_codes);
}
TEST_F(Fp8Invariance, NothingDependsOnStages) { test::hold("nothing depends on pipeline", stages); }

TEST_F(Fp8Invariance, NothingDependsOnRanks) {
  test::hold("nothing depends on ranks", [](Choices& c) {
    const Scenario alone = with_even_microbatches(draw(c));
    Scenario shared = alone;
    share_with_another_rank(shared, c);
    return difference(alone, shared, true);
  });
}

TEST_F(Fp8Invariance, TheFirstStepIsTheSameInBothRecipes) {
  test::hold("the first step has no earlier exponents", [](Choices& c) -> std::string {
    Scenario s = draw(c);
    s.training.steps = 1;
    s.training.eval_every = 0;
    s.training.change_microbatches_at.clear();
    s.training.recapture_at.clear();
    s.cuda_graph = {};
    s.cuda_graph.impl = GraphImpl::none;
    s.offload = {};
    s.fp8.recipe = Fp8Recipe::current;
    Scenario delayed = s;
    delayed.fp8.recipe = Fp8Recipe::delayed;
    test::require_another(s, delayed);
    const auto data = open_data(s);
    const Outcome a = test::run(s, *data);
    Outcome b = test::run(delayed, *data);
    b.digest = a.digest;  // Scaling state is in one alone.
    return test::difference(a, b);
  });
}

TEST_F(Fp8Invariance, TheLastAmaxNeedsNoHistory) {
  test::hold("most_recent reads one amax", [](Choices& c) -> std::string {
    Scenario s = draw(c);
    if (s.fp8.recipe != Fp8Recipe::delayed) throw test::NothingToCompare{};
    s.fp8.algorithm = Fp8Algorithm::most_recent;
    Scenario longer = s;
    longer.fp8.history = 7;
    test::require_another(s, longer);
    const auto data = open_data(s);
    const Outcome a = test::run(s, *data);
    Outcome b = test::run(longer, *data);
    b.digest = a.digest;  // Histories differ in length.
    return test::difference(a, b);
  });
}

TEST_F(Fp8Invariance, AnEvaluationChangesNoTraining) {
  test::hold("an evaluation records nothing", [](Choices& c) -> std::string {
    Scenario s = draw(c);
    s.training.eval_every = 0;
    s.cuda_graph.evaluation = GraphEvaluation::eager;
    Scenario evaluated = s;
    evaluated.training.eval_every = 1;
    test::require_another(s, evaluated);
    const auto data = open_data(s);
    Outcome a = test::run(s, *data), b = test::run(evaluated, *data);
    a.evaluations = b.evaluations;
    return test::difference(a, b);
  });
}

TEST_F(Fp8Invariance, ItsBitsAreNotThoseOfBf16) {
  const int wanted = test::scenarios_asked_for(kScenarios);
  int same = 0, compared = 0;
  for (std::uint64_t seed = 1; compared < wanted && seed <= 10ull * wanted; ++seed) {
    Choices c(seed);
    const Scenario s = draw(c);
    Scenario bf16 = s;
    bf16.numerics = {Numerics::bf16};
    if (!check_legality(s).empty() || !check_legality(bf16).empty()) continue;
    const auto data = open_data(s);
    ++compared;
    same += test::same_bits(test::run(s, *data).weights, test::run(bf16, *data).weights);
  }
  std::printf("bits are not those of bf16: %d of %d on %s\n", compared - same, compared,
              test::device_under_test().c_str());
  EXPECT_EQ(compared, wanted);
  EXPECT_LT(4 * same, compared);  // Without learning, weights stay what they were.
}

// ---- And it can fail ----------------------------------------------------------------------------

TEST_F(Fp8Invariance, IsBrokenByPlantedFaults) {
  const auto is_seen = [](const char* fault, Edit edit) {
    return test::is_seen(fault, [&](Choices& c) { return after(edit, c); });
  };
  EXPECT_TRUE(is_seen("fp8-original-input-not-quantised-again", save_other_inputs));
  EXPECT_TRUE(is_seen("fp8-weights-of-the-pass-before", quantise_in_each_pass));
  EXPECT_TRUE(test::is_seen("fp8-transposed-codes-of-the-first-step", gathered_codes));
  EXPECT_TRUE(test::is_seen("normaliser-of-one-stage", stages));
  EXPECT_FALSE(is_seen("", save_other_inputs));
}

}  // namespace
}  // namespace lockstep
