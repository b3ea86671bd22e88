// Experts in fp8 numerics: their bits depend on nothing but the numbers, however they are run.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "engine/offload/plan.h"
#include "kernels/core/row_segments.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/check.h"
#include "scenarios/rules/legality.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

Scenario base(const std::string& pattern = "E*") {
  Scenario s;
  s.name = "fp8-experts";
  s.numerics = {Numerics::fp8};
  s.model.pattern = pattern;
  s.model.hidden = 32;
  s.model.moe.experts = 5;
  s.model.moe.hidden = 48;
  s.model.moe.shared_hidden = 16;
  s.training.steps = 3;
  s.training.microbatches = 3;
  s.training.in_flight = 2;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {}}, {{64}, {1, 1}, {0, 31}}};
  return s;
}
Scenario dropless() {
  Scenario s = base();
  s.model.moe.capacity_factor.reset();
  s.model.moe.pad_to_capacity = false;
  s.cuda_graph.modules = {GraphModule::moe_router};
  return s;
}

void expect_invariant(const Scenario& a, const std::function<void(Scenario&)>& change) {
  Scenario b = a;
  change(b);
  for (const Fp8Layer layer : implied_original_inputs(b.model)) {
    if (!holds(b.fp8.save_original_input, layer)) b.fp8.save_original_input.push_back(layer);
  }
  const auto errors = check_legality(b);
  ASSERT_TRUE(errors.empty()) << errors.front().text();
  const auto data = open_data(a);
  EXPECT_EQ(difference(run(a, *data), run(b, *data)), "");
}

TEST(Fp8Experts, NothingDependsOnGraphs) {
  expect_invariant(base(), [](Scenario& s) { s.cuda_graph.impl = GraphImpl::none; });
  expect_invariant(base(), [](Scenario& s) { s.cuda_graph.impl = GraphImpl::full_iteration; });
  expect_invariant(base(), [](Scenario& s) { s.cuda_graph.shared_memory = true; });
  expect_invariant(base(), [](Scenario& s) { s.cuda_graph.modules = {GraphModule::moe_router}; });
  expect_invariant(base(), [](Scenario& s) {
    s.cuda_graph.modules = {GraphModule::moe_router, GraphModule::moe_preprocess};
  });
  expect_invariant(base(), [](Scenario& s) {
    s.cuda_graph.capture_passes = 1;
    s.cuda_graph.warmup_steps = 0;
  });
  expect_invariant(dropless(), [](Scenario& s) {
    s.cuda_graph.impl = GraphImpl::none;
    s.cuda_graph.modules.clear();
  });
}

TEST(Fp8Experts, NothingDependsOnTheHostKnowingTheirRows) {
  expect_invariant(dropless(), [](Scenario& s) { s.model.moe.host_sync = true; });
}

TEST(Fp8Experts, NothingDependsOnWhatIsComputedAgain) {
  for (const Recompute word : {Recompute::layernorm, Recompute::moe_act, Recompute::moe}) {
    expect_invariant(base(), [&](Scenario& s) { s.model.recompute = {word}; });
    expect_invariant(dropless(), [&](Scenario& s) { s.model.recompute = {word}; });
  }
  // The graph of the router reads codes that its experts, which run eagerly, have made again.
  expect_invariant(base("E"), [](Scenario& s) {
    s.model.recompute = {Recompute::moe};
    s.cuda_graph.modules = {GraphModule::moe_router};
    s.cuda_graph.capture_passes = 1;
    s.cuda_graph.warmup_steps = 0;
  });
}

TEST(Fp8Experts, NothingDependsOnWhatIsSavedInBf16) {
  using enum Fp8Layer;
  for (const Fp8Layer layer : {expert_fc1, expert_fc2, shared_fc1, shared_fc2})
    expect_invariant(base(), [&](Scenario& s) { s.fp8.save_original_input = {layer}; });
}

TEST(Fp8Experts, NothingDependsOnOffloading) {
  for (const bool saves : {false, true}) {
    for (const bool host_sync : {false, true}) {
      expect_invariant(dropless(), [&](Scenario& s) {
        s.model.moe.host_sync = host_sync;
        if (saves) s.fp8.save_original_input = {Fp8Layer::expert_fc1};
        s.offload.modules = {OffloadModule::expert_fc1, OffloadModule::moe_act};
      });
    }
  }
}

TEST(Fp8Experts, TheCodesOfTheirInputsAreOffloaded) {
  Scenario s = dropless();
  s.offload.modules = {OffloadModule::expert_fc1};
  const OffloadTensor codes = plan_offload(s).groups.at(0).tensors.at(0);
  const std::int64_t rows = s.data.pack_length * s.model.moe.top_k;
  EXPECT_EQ(codes.name, "layers.0.expert_fc1.x8");
  EXPECT_EQ(codes.bytes, s.model.hidden * transposed_columns(rows, s.model.moe.experts));
  s.fp8.save_original_input = {Fp8Layer::expert_fc1};
  const OffloadTensor rows_themselves = plan_offload(s).groups.at(0).tensors.at(0);
  EXPECT_EQ(rows_themselves.name, "layers.0.dispatched");
  EXPECT_EQ(rows_themselves.bytes, 2 * s.model.hidden * rows);
}

TEST(Fp8Experts, NothingDependsOnTheWeightCache) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    expect_invariant(base(), [&](Scenario& s) {
      s.fp8.weight_cache = false;
      s.cuda_graph.impl = impl;
    });
  }
}

// Two ranks own parts of an expert's rows.
TEST(Fp8Experts, NothingDependsOnShards) {
  for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
    Scenario a = base("E");
    a.fp8.recipe = recipe;
    a.fp8.history = 2;
    a.training.microbatches = 4;
    a.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {}, {4}}, {{64}, {1, 1}, {0, 31}, {2}}};
    a.fsdp.strategy = Sharding::optim_grads;
    const auto data = open_data(a);
    const Outcome want = run_whole(a, *data);
    for (const Sharding strategy : {Sharding::optim_grads, Sharding::optim_grads_params}) {
      for (const bool gathers : {false, true}) {
        Scenario b = a;
        b.fsdp.strategy = strategy;
        b.fp8.param_gather = gathers;
        b.fp8.weight_cache = gathers || strategy != Sharding::optim_grads_params;
        EXPECT_EQ(difference(want, run_whole(b, *data)), "");
        b.parallel.data = 2;
        b.training.microbatches = 2;
        EXPECT_EQ(difference(want, run_whole(b, *data)), "");
      }
    }
  }
}

TEST(Fp8Experts, ARunGoesOnFromAFileWithItsScaling) {
  Scenario s = base("E");
  s.fp8.recipe = Fp8Recipe::delayed;
  s.fp8.history = 2;
  s.training.steps = 5;
  const auto data = open_data(s);
  const Outcome whole = run(s, *data), resumed = run_resumed(s, *data, 3);
  EXPECT_TRUE(same_bits(whole.weights, resumed.weights));
  EXPECT_EQ(whole.digest, resumed.digest);
}

TEST(Fp8Experts, AllExpertsOfALayerAreOneProduct) {
  const Scenario s = base("E");
  const auto data = open_data(s);
  const Outcome outcome = run(s, *data);
  EXPECT_EQ(outcome.counters.at(Counter::fp8_products), 4 * (3 * 9 + 3));
  EXPECT_EQ(outcome.counters.at(Counter::fp8_casts), 4 * (2 * 9 + 3));
  EXPECT_EQ(outcome.counters.at(Counter::weight_casts), 4 * (3 + 1));
}

}  // namespace
}  // namespace lockstep::test
