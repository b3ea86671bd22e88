// Experts that lie on several ranks (parallel.expert): a run has the bits of the same run in which
// every rank has all of them.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <stdlib.h>

#include <functional>

#include "harness/checker/checker.h"
#include "scenarios/fp8.h"
#include "scenarios/pass_order.h"
#include "scenarios/rules/check.h"
#include "scenarios/schema/words.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

constexpr auto kStrategies = std::to_array<Sharding>(
    {Sharding::no_shard, Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params});

Scenario base() {
  Scenario s;
  s.name = "experts-apart";
  s.model.pattern = "E*EM";
  s.model.dropout = {100'000};
  s.model.moe.experts = 12;
  s.model.moe.hidden = 16;
  s.model.moe.shared_hidden = 16;
  s.model.moe.aux_loss = {10'000};
  s.model.moe.router = Router::sigmoid;
  s.model.moe.expert_bias = true;
  s.training.steps = 3;
  s.training.microbatches = 3;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {}, {9}, {2, 40}},
                      {{64}, {3, 4, 20, 15, 9}, {0, 31}, {1}, {12}}};
  s.cuda_graph.impl = GraphImpl::none;
  s.parallel.data = 6;
  return s;
}

void drop_none(Scenario& s) {
  s.model.moe.capacity_factor.reset();
  s.model.moe.pad_to_capacity = false;
}

// Rows of sources that differ, and exponents that move from step to step.
Scenario base_of_fp8(Fp8Recipe recipe) {
  Scenario s = base();
  s.numerics = {Numerics::fp8};
  s.model.pattern = "E*E";
  s.fp8.recipe = recipe;
  s.fp8.history = 2;
  s.training.optimizer.lr = 0.02;
  return s;
}

// Experts on several ranks of the scenario that has them on one.
void expect_no_difference_from(const Scenario& one,
                               const std::vector<std::int64_t>& numbers = {2, 3, 6}) {
  const auto data = open_data(one);
  const Outcome want = run_whole(one, *data);
  for (const std::int64_t ranks : numbers) {
    Scenario apart = one;
    apart.parallel.expert = ranks;
    ASSERT_TRUE(check_legality(apart).empty()) << ranks;
    ASSERT_TRUE(check_built(apart).empty()) << ranks;
    EXPECT_EQ(difference(want, run_whole(apart, *data)), "") << ranks << " ranks";
  }
}

// Experts on 2, 3 and 6 ranks, with what `change` asks for in both runs.
void expect_no_difference(const std::function<void(Scenario&)>& change) {
  Scenario one = base();
  change(one);
  expect_no_difference_from(one);
}

TEST(ExpertsApart, ChangeNoBitOfAnyStrategy) {
  for (const Sharding strategy : kStrategies) {
    expect_no_difference([&](Scenario& s) { s.fsdp.strategy = strategy; });
    expect_no_difference([&](Scenario& s) {
      s.fsdp.strategy = strategy;
      drop_none(s);
      s.numerics = {Numerics::bf16};
    });
  }
}

TEST(ExpertsApart, ChangeNoBitWhereTheHostReadsSizes) {
  expect_no_difference([](Scenario& s) {
    drop_none(s);
    s.model.moe.host_sync = true;
  });
  expect_no_difference([](Scenario& s) {
    s.model.moe.capacity_factor = {700'000};
    s.model.moe.pad_to_capacity = false;
    s.model.moe.host_sync = true;
    s.fsdp.strategy = Sharding::optim_grads;
  });
}

TEST(ExpertsApart, ChangeNoBitBesideGraphs) {
  expect_no_difference([](Scenario& s) {
    s.cuda_graph.impl = GraphImpl::partial;
    s.cuda_graph.modules = {GraphModule::attn, GraphModule::moe_router,
                            GraphModule::moe_preprocess};
    s.cuda_graph.max_packed_seqs = {2, 4};
    s.cuda_graph.evaluation = GraphEvaluation::replay;
    s.cuda_graph.capture_passes = 1;
    s.training.recapture_at = {2};
    s.fsdp.strategy = Sharding::optim_grads_params;
  });
}

TEST(ExpertsApart, ChangeNoBitOfWhatIsComputedAgain) {
  expect_no_difference([](Scenario& s) {
    s.model.recompute = {Recompute::layernorm, Recompute::moe};
    drop_none(s);
    s.model.moe.host_sync = true;
  });
  expect_no_difference([](Scenario& s) { s.model.recompute = {Recompute::moe_act}; });
}

// The rows that the owner of the experts has received leave it, and their first product.
TEST(ExpertsApart, ChangeNoBitOfWhatGoesToTheHost) {
  for (const bool host_sync : {false, true}) {
    expect_no_difference([&](Scenario& s) {
      s.offload.modules = {OffloadModule::core_attn, OffloadModule::expert_fc1,
                           OffloadModule::moe_act};
      s.training.in_flight = 3;
      drop_none(s);
      s.model.moe.host_sync = host_sync;
      s.fsdp.strategy = host_sync ? Sharding::optim_grads : Sharding::no_shard;
    });
    Scenario in_fp8 = base_of_fp8(Fp8Recipe::current);
    drop_none(in_fp8);
    in_fp8.model.moe.host_sync = host_sync;
    in_fp8.offload.modules = {OffloadModule::expert_fc1, OffloadModule::moe_act};
    expect_no_difference_from(in_fp8, {2, 6});
  }
}

// The buffers of an owner are larger than those of a source unless experts drop and pad.
TEST(ExpertsApart, ChangeNoBitInSharedMemory) {
  for (const bool drops : {false, true}) {
    expect_no_difference([&](Scenario& s) {
      s.cuda_graph.impl = GraphImpl::partial;
      s.cuda_graph.modules = {GraphModule::attn, GraphModule::moe_router};
      s.cuda_graph.shared_memory = true;
      s.offload.modules = {OffloadModule::expert_fc1};
      s.offload.fraction = {500'000};
      drop_none(s);
      if (drops) s.model.moe.capacity_factor = {700'000};
      s.model.moe.host_sync = drops;
    });
  }
}

TEST(ExpertsApart, ChangeNoBitOfStages) {
  expect_no_difference([](Scenario& s) {
    s.parallel.pipeline = 2;
    s.model.tied_embedding = true;
    s.training.in_flight = scheduled_depth(s);
    s.fsdp.strategy = Sharding::optim;
  });
}

// The same bits from any number of ranks, where gradients are sharded.
void fold_each_source_in_order() {
  Scenario one = base();
  one.fsdp.strategy = *rc::gen::element(Sharding::optim_grads, Sharding::optim_grads_params);
  one.model.moe.top_k = *rc::gen::inRange(1, 4);
  one.training.microbatches = 12;
  one.training.in_flight = 2;
  one.training.steps = 2;
  one.training.seed = *rc::gen::inRange(1, 1000);
  one.parallel.data = 1;
  const auto data = open_data(one);
  const Outcome want = run_whole(one, *data);
  Scenario several = one;
  several.parallel.data = *rc::gen::element(2, 4, 6, 12);
  several.training.microbatches = 12 / several.parallel.data;
  several.training.in_flight = 1;
  std::vector<std::int64_t> divisors;
  for (std::int64_t x = 2; x <= several.parallel.data; ++x)
    if (several.parallel.data % x == 0) divisors.push_back(x);
  several.parallel.expert = *rc::gen::elementOf(divisors);
  RC_ASSERT(check_legality(several).empty());
  RC_ASSERT(difference(want, run_whole(several, *data)) == "");
}
TEST(ExpertsApart, FoldEachSourceInOrder) {
  ::setenv("RC_PARAMS", "max_success=30", 0);  // RapidCheck's hundred are for the night.
  EXPECT_TRUE(rc::check("experts fold each source in order", fold_each_source_in_order));
}

void run_and_save(const Scenario& scenario, const DataSource& data, const std::string& path) {
  Device device(open_device_under_test({}));
  const auto ranks = static_cast<int>(ranks_of_run(scenario));
  run_ranks(device, ranks, 1, [&](Communicator& communicator) {
    Trainer trainer(device, scenario, data, {.communicator = &communicator});
    while (trainer.steps_done() < scenario.training.steps) trainer.step();
    trainer.save(path);
  });
}

// Saved in the middle of the second step by experts on each number of ranks, and loaded by others.
void expect_going_on_within_a_step(const Scenario& one, const std::vector<std::int64_t>& numbers) {
  const auto data = open_data(one);
  const Outcome want = run_whole(one, *data);
  const TemporaryFolder folder;
  for (const std::int64_t saves : numbers) {
    const std::string path = folder / std::to_string(saves);
    Scenario first = one;
    first.parallel.expert = saves;
    save_within_second_step(first, *data, 2, path);
    for (const std::int64_t loads : {1, 2, 6}) {
      Scenario second = one;
      second.parallel.expert = loads;
      EXPECT_EQ(want.digest, run_whole(second, *data, {}, nullptr, path).digest)
          << word(one.fsdp.strategy) << saves << " to " << loads;
    }
  }
}

// The same within a step, where each rank has folded its own gradients, or all of them together.
TEST(ExpertsApart, GoOnWithinAStep) {
  for (const Sharding strategy : kStrategies) {
    Scenario one = base();
    one.fsdp.strategy = strategy;
    one.training.eval_every = 0;
    one.training.steps = 2;
    expect_going_on_within_a_step(one, {1, 3, 6});
  }
}

// Any number of ranks with experts goes on from where another has saved.
TEST(ExpertsApart, GoOnFromACheckpointOfOthers) {
  for (const Sharding strategy : kStrategies) {
    Scenario one = base();
    one.fsdp.strategy = strategy;
    one.training.eval_every = 0;
    const auto data = open_data(one);
    const Outcome want = run_whole(one, *data);
    const TemporaryFolder folder;
    for (const std::int64_t saves : {1, 2, 6}) {
      const std::string path = folder / std::to_string(saves);
      Scenario first = one;
      first.parallel.expert = saves;
      first.training.steps = 2;
      run_and_save(first, *data, path);
      for (const std::int64_t loads : {1, 3, 6}) {
        Scenario second = one;
        second.parallel.expert = loads;
        const Outcome end = run_whole(second, *data, {}, nullptr, path);
        EXPECT_EQ(want.digest, end.digest) << word(strategy) << saves << " to " << loads;
        EXPECT_EQ(want.m, end.m) << word(strategy) << saves << " to " << loads;
        EXPECT_EQ(want.expert_biases, end.expert_biases) << saves << " to " << loads;
      }
    }
  }
}

// Each source's rows have an exponent of their own, or that of earlier steps of all ranks.
TEST(ExpertsApart, ChangeNoBitOfFp8) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
    for (const Sharding strategy : kStrategies) {
      for (const bool gathers : {false, true}) {
        if (gathers && strategy == Sharding::no_shard) continue;
        Scenario one = base_of_fp8(recipe);
        one.fsdp.strategy = strategy;
        one.fp8.param_gather = gathers;
        one.fp8.weight_cache = gathers || strategy != Sharding::optim_grads_params;
        expect_no_difference_from(one, {2, 6});
        drop_none(one);
        one.model.moe.host_sync = gathers;
        expect_no_difference_from(one, {3});
      }
    }
  }
}

TEST(ExpertsApart, ChangeNoBitOfFp8OnTwoAndFourRanks) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
    Scenario one = base_of_fp8(recipe);
    one.model.moe.capacity_factor = {700'000};
    one.model.moe.pad_to_capacity = false;
    one.parallel.data = 4;
    one.fsdp.strategy = Sharding::optim;
    expect_no_difference_from(one, {2, 4});
  }
}

TEST(ExpertsApart, ChangeNoBitOfFp8ThatIsComputedAgain) {
  for (const Recompute word : {Recompute::layernorm, Recompute::moe_act, Recompute::moe}) {
    for (const bool drops : {true, false}) {
      Scenario one = base_of_fp8(Fp8Recipe::current);
      one.model.recompute = {word};
      one.fp8.save_original_input = implied_original_inputs(one.model);
      if (!drops) drop_none(one);
      expect_no_difference_from(one, {2});
    }
  }
  using enum Fp8Layer;
  for (const Fp8Layer layer : {expert_fc1, expert_fc2, shared_fc1}) {
    Scenario one = base_of_fp8(Fp8Recipe::current);
    one.fp8.save_original_input = {layer};
    expect_no_difference_from(one, {3});
  }
}

TEST(ExpertsApart, ChangeNoBitOfFp8BesideGraphsAndStages) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
    Scenario one = base_of_fp8(recipe);
    one.cuda_graph.impl = GraphImpl::partial;
    one.cuda_graph.modules = {GraphModule::attn, GraphModule::moe_router,
                              GraphModule::moe_preprocess};
    one.cuda_graph.evaluation = GraphEvaluation::replay;
    one.cuda_graph.capture_passes = 1;
    one.fsdp.strategy = Sharding::optim_grads_params;
    one.fp8.param_gather = true;
    expect_no_difference_from(one, {2});
    Scenario staged = base_of_fp8(recipe);
    staged.parallel.pipeline = 2;
    staged.training.in_flight = scheduled_depth(staged);
    staged.fsdp.strategy = Sharding::optim;
    expect_no_difference_from(staged, {3});
  }
}

// Histories and exponents of all experts are in every checkpoint, what is pending within a step.
TEST(ExpertsApart, GoOnInFp8) {
  for (const Sharding strategy : {Sharding::no_shard, Sharding::optim_grads_params}) {
    Scenario one = base_of_fp8(Fp8Recipe::delayed);
    one.fsdp.strategy = strategy;
    one.fp8.param_gather = strategy != Sharding::no_shard;
    one.training.eval_every = 0;
    expect_going_on_within_a_step(one, {1, 3});
  }
}

TEST(ExpertsApart, OrderAllThatTheyExchange) {
  for (const Sharding strategy : {Sharding::no_shard, Sharding::optim_grads_params}) {
    Scenario s = base();
    s.fsdp.strategy = strategy;
    s.parallel.expert = 3;
    drop_none(s);
    s.model.moe.host_sync = strategy == Sharding::no_shard;
    s.checker.poison = {Poison::fresh, Poison::padding, Poison::staging};
    const auto data = open_data(s);
    for (const SimOptions::Policy policy : {SimOptions::Policy::random, SimOptions::Policy::lazy}) {
      Checker checker({.stop = false, .mutation = "", .dropped = {}});
      run_whole(s, *data, {.policy = policy, .seed = 7, .trace = nullptr}, &checker);
      for (const Hazard& hazard : checker.hazards())
        ADD_FAILURE() << word(strategy) << ": " << text(hazard);
    }
  }
}

}  // namespace
}  // namespace lockstep::test
