// fp8 numerics: what its bits may not depend on and what they must, and the codes that a run leaves
// against the scalar model of kernels/core/fp8.h.
#include "kernels/core/fp8.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "engine/offload/plan.h"
#include "scenarios/fp8.h"
#include "scenarios/rules/check.h"
#include "tests/engine/fsdp/sharded_run.h"

namespace lockstep::test {
namespace {

Scenario base() {
  Scenario s;
  s.name = "fp8";
  s.numerics = {Numerics::fp8};
  s.model.pattern = "M*-";
  s.model.hidden = 32;
  s.model.mlp.hidden = 144;
  s.model.dropout = {100'000};
  s.training.steps = 3;
  s.training.microbatches = 3;
  s.training.in_flight = 2;
  s.training.eval_every = 2;
  s.data.documents = {{{17, 1, 0, 30}, {5, 16, 33}, {3, 3}}, {{64}, {3, 4, 20, 15, 9}, {0, 31}}};
  return s;
}

void expect_invariant(const std::function<void(Scenario&)>& change) {
  const Scenario a = base();
  Scenario b = a;
  change(b);
  for (const Fp8Layer layer : implied_original_inputs(b.model))
    b.fp8.save_original_input.push_back(layer);
  ASSERT_EQ(check_legality(b).size(), 0u);
  const auto data = open_data(a);
  EXPECT_EQ(difference(run(a, *data), run(b, *data)), "");
}

TEST(Fp8, NothingDependsOnGraphs) {
  expect_invariant([](Scenario& s) { s.cuda_graph.impl = GraphImpl::none; });
  expect_invariant([](Scenario& s) { s.cuda_graph.impl = GraphImpl::full_iteration; });
  expect_invariant([](Scenario& s) { s.cuda_graph.max_packed_seqs = {2}; });
  expect_invariant([](Scenario& s) { s.cuda_graph.evaluation = GraphEvaluation::replay; });
  expect_invariant([](Scenario& s) { s.cuda_graph.shared_memory = true; });
  expect_invariant([](Scenario& s) { s.training.recapture_at = {2}; });
  expect_invariant([](Scenario& s) {
    s.cuda_graph.capture_passes = 2;
    s.cuda_graph.warmup_steps = 0;
  });
}

TEST(Fp8, NothingDependsOnSlots) {
  for (const int depth : {1, 3}) {
    for (const GraphImpl impl : {GraphImpl::partial, GraphImpl::full_iteration}) {
      expect_invariant([&](Scenario& s) {
        s.training.in_flight = depth;
        s.cuda_graph.impl = impl;
      });
    }
  }
}

TEST(Fp8, NothingDependsOnWhatIsComputedAgain) {
  for (const Recompute word : {Recompute::layernorm, Recompute::mlp_act, Recompute::core_attn,
                               Recompute::mlp, Recompute::mamba}) {
    expect_invariant([&](Scenario& s) { s.model.recompute = {word}; });
  }
  expect_invariant([](Scenario& s) {
    s.model.recompute = {Recompute::layernorm, Recompute::core_attn, Recompute::mlp,
                         Recompute::mamba};
    s.cuda_graph.impl = GraphImpl::full_iteration;
  });
}

TEST(Fp8, NothingDependsOnWhatIsSavedInBf16) {
  for (int layer = 0; layer <= static_cast<int>(Fp8Layer::mamba_out_proj); ++layer) {
    expect_invariant(
        [&](Scenario& s) { s.fp8.save_original_input = {static_cast<Fp8Layer>(layer)}; });
  }
}

TEST(Fp8, NothingDependsOnOffloading) {
  using enum OffloadModule;
  for (const bool saves : {false, true}) {
    for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
      expect_invariant([&](Scenario& s) {
        if (saves) s.fp8.save_original_input = {Fp8Layer::qkv_linear, Fp8Layer::attn_proj};
        s.cuda_graph.impl = impl;
        s.offload.modules = {qkv_linear, core_attn, attn_proj, mlp_fc1, mamba_in_proj};
        if (impl == GraphImpl::full_iteration) s.offload.max_inflight = 2;  // L29.
      });
    }
  }
}

// Codes move in place of inputs, a byte an element, but the output of attention, which its own
// backward pass reads.
TEST(Fp8, WhatIsOffloadedAreCodes) {
  Scenario s = base();
  s.offload.modules = {OffloadModule::core_attn, OffloadModule::attn_proj, OffloadModule::mlp_fc1};
  const auto moved = [&] {
    std::map<std::string, std::int64_t> bytes;
    for (const OffloadGroup& group : plan_offload(s).groups) {
      for (const OffloadTensor& tensor : group.tensors) bytes[tensor.name] = tensor.bytes;
    }
    return bytes;
  };
  const std::int64_t rows = s.data.pack_length;
  const std::int64_t mixed = rows * s.model.attention.heads * s.model.attention.head_dim;
  const std::map<std::string, std::int64_t> codes = moved();
  EXPECT_EQ(codes.at("layers.1.core_attn.out"), 2 * mixed);
  EXPECT_EQ(codes.at("layers.1.attn_proj.x8"), mixed);
  EXPECT_EQ(codes.at("layers.2.mlp_fc1.x8"), rows * s.model.hidden);
  s.fp8.save_original_input = {Fp8Layer::attn_proj, Fp8Layer::mlp_fc1};
  const std::map<std::string, std::int64_t> inputs = moved();
  EXPECT_EQ(inputs.at("layers.1.core_attn.out"), 2 * mixed);
  EXPECT_FALSE(inputs.contains("layers.1.attn_proj.x8"));
  EXPECT_EQ(inputs.at("layers.2.norm.out"), 2 * rows * s.model.hidden);
}

TEST(Fp8, NothingDependsOnTheWeightCache) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    expect_invariant([&](Scenario& s) {
      s.fp8.weight_cache = false;
      s.cuda_graph.impl = impl;
      s.model.recompute = {Recompute::mlp};
    });
  }
}

// A rank alone exchanges with itself.
TEST(Fp8, NothingDependsOnShards) {
  for (const Sharding strategy :
       {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    expect_invariant([&](Scenario& s) {
      s.fsdp.strategy = strategy;
      s.fp8.weight_cache = strategy != Sharding::optim_grads_params;
    });
  }
}

TEST(Fp8, NothingDependsOnGatheredCodes) {
  for (const Sharding strategy :
       {Sharding::optim, Sharding::optim_grads, Sharding::optim_grads_params}) {
    for (const Fp8Recipe recipe : {Fp8Recipe::current, Fp8Recipe::delayed}) {
      Scenario a = base();
      a.training.microbatches = 4;
      a.fsdp.strategy = strategy;
      a.fp8.recipe = recipe;
      a.fp8.history = 2;
      a.fp8.weight_cache = strategy != Sharding::optim_grads_params;
      const auto data = open_data(a);
      const Outcome want = run_whole(a, *data);
      a.fp8.param_gather = a.fp8.weight_cache = true;
      ASSERT_EQ(check_legality(a).size(), 0u);
      const Outcome alone = run_whole(a, *data);
      EXPECT_EQ(difference(want, alone), "");
      EXPECT_EQ(alone.counters.at(Counter::weight_casts), 6 * 4);
      EXPECT_EQ(alone.counters.at(Counter::amax_exchanges), 4);
      if (strategy == Sharding::optim) continue;  // Ranks fold gradients of their own.
      a.parallel.data = 2;
      a.training.microbatches = 2;
      EXPECT_EQ(difference(want, run_whole(a, *data)), "");
    }
  }
}

TEST(Fp8, ARunGoesOnFromAFile) {
  const Scenario s = base();
  const auto data = open_data(s);
  const Outcome whole = run(s, *data), resumed = run_resumed(s, *data, 1);
  EXPECT_TRUE(same_bits(whole.weights, resumed.weights));
  EXPECT_EQ(whole.digest, resumed.digest);
}

TEST(Fp8, NothingOfTheRecipeDelayedDependsOnHowItIsRun) {
  Scenario a = base();
  a.training.steps = 5;
  a.fp8.recipe = Fp8Recipe::delayed;
  a.fp8.history = 2;
  a.fp8.margin = 1;
  const auto data = open_data(a);
  const Outcome want = run(a, *data);
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::full_iteration, GraphImpl::partial}) {
    Scenario b = a;
    b.cuda_graph.impl = impl;
    b.cuda_graph.capture_passes = impl == GraphImpl::partial ? 1 : 0;
    b.fp8.weight_cache = impl == GraphImpl::none;
    EXPECT_EQ(difference(want, run(b, *data)), "");
  }
  EXPECT_EQ(want.digest, run_resumed(a, *data, 3).digest);
  a.fp8.recipe = Fp8Recipe::current;
  EXPECT_NE(difference(want, run(a, *data)), "");
}

TEST(Fp8, NoExponentOfDelayedDependsOnRanks) {
  Scenario a = base();
  a.training.steps = 4;
  a.training.microbatches = 4;
  a.fp8.recipe = Fp8Recipe::delayed;
  a.fp8.history = 2;
  a.fsdp.strategy = Sharding::optim_grads;
  const auto data = open_data(a);
  const Outcome want = run_whole(a, *data);
  EXPECT_EQ(want.counters.at(Counter::amax_exchanges), 4);
  Scenario alone = a;
  alone.fsdp.strategy = Sharding::no_shard;
  EXPECT_EQ(difference(want, run_whole(alone, *data)), "");
  a.cuda_graph.impl = GraphImpl::full_iteration;
  const Outcome replayed = run_whole(a, *data);
  EXPECT_EQ(difference(want, replayed), "");
  EXPECT_EQ(replayed.counters.at(Counter::amax_exchanges), 4);
  a.cuda_graph.impl = GraphImpl::partial;
  a.parallel.data = 2;
  a.training.microbatches = 2;
  for (const Sharding strategy : {Sharding::optim_grads, Sharding::optim_grads_params}) {
    a.fsdp.strategy = strategy;
    a.fp8.weight_cache = strategy == Sharding::optim_grads;
    const Outcome ranks = run_whole(a, *data);
    EXPECT_EQ(difference(want, ranks), "");
    EXPECT_EQ(ranks.counters.at(Counter::amax_exchanges), 4);
  }
}

// Step 0 takes each exponent from its own operand, as recipe current does.
TEST(Fp8, TheFirstStepOfDelayedIsThatOfCurrent) {
  Scenario a = base();
  a.training.steps = 1;
  a.training.eval_every = 0;
  a.cuda_graph.impl = GraphImpl::none;
  Scenario b = a;
  b.fp8.recipe = Fp8Recipe::delayed;
  b.fp8.margin = 3;
  const auto data = open_data(a);
  Outcome current = run(a, *data), delayed = run(b, *data);
  EXPECT_NE(current.digest, delayed.digest);  // One has scaling state.
  delayed.digest.resize(current.digest.size());
  EXPECT_EQ(difference(current, delayed), "");
}

TEST(Fp8, OtherBitsThanBf16) {
  const Scenario s = base();
  Scenario wider = s;
  wider.numerics = {Numerics::bf16};
  const auto data = open_data(s);
  EXPECT_EQ(difference(run(s, *data), run(wider, *data)), "microbatch losses of step 0");
}

// Keeps the values of the first forward pass by name, and the weights that it read.
class FirstPass : public StepListener {
 public:
  void watch(Trainer& trainer) {
    trainer_ = &trainer;
    for (const ParameterView& p : trainer.parameters()) weights[p.name] = trainer.read(p.weight);
  }
  void forward_done(int, const std::vector<NamedTensor>& names, bool) override {
    if (!values.empty()) return;
    for (const NamedTensor& one : names) values[one.name] = trainer_->read(one.tensor);
  }

  std::map<std::string, std::vector<float>> weights, values;

 private:
  Trainer* trainer_ = nullptr;
};

// The codes of these values, which are bf16, by the exponent of their own largest.
void expect_codes(const FirstPass& pass, const std::string& operand,
                  const std::vector<float>& values) {
  SCOPED_TRACE(operand);
  std::uint32_t amax = 0;
  for (const float x : values) amax = std::max(amax, fp8_amax(st<bf16>(x)));
  const std::int32_t k = fp8_exponent<e4m3>(amax);
  EXPECT_EQ(pass.values.at(operand + "_amax"), std::vector{std::bit_cast<float>(amax)});
  EXPECT_EQ(pass.values.at(operand + "_k"), std::vector{static_cast<float>(k)});
  std::vector<float> codes;
  for (const float x : values) codes.push_back(fp8_code<e4m3>(st<bf16>(x), k).bits);
  EXPECT_EQ(pass.values.at(operand + "8"), codes);
}

TEST(Fp8, CodesAreThoseOfTheScalarModel) {
  Scenario s = base();
  s.cuda_graph.impl = GraphImpl::none;
  const auto data = open_data(s);
  const auto step = [&](FirstPass& pass) {
    Device device(open_device_under_test());
    Trainer trainer(device, s, *data, {.listener = &pass});
    pass.watch(trainer);
    trainer.step();
  };
  FirstPass pass, saving;
  step(pass);
  using enum Fp8Layer;
  s.fp8.save_original_input = {qkv_linear, mlp_fc2, mamba_out_proj};
  step(saving);
  expect_codes(pass, "layers.0.mamba_in_proj.w", pass.weights.at("layers.0.in_proj.weight"));
  expect_codes(pass, "layers.1.attn_proj.w", pass.weights.at("layers.1.proj.weight"));
  expect_codes(pass, "layers.2.mlp_fc2.w", pass.weights.at("layers.2.fc2.weight"));
  expect_codes(pass, "layers.0.mamba_out_proj.x", saving.values.at("layers.0.gated_norm.out"));
  expect_codes(pass, "layers.1.qkv_linear.x", saving.values.at("layers.1.norm.out"));
  expect_codes(pass, "layers.1.attn_proj.x", pass.values.at("layers.1.core_attn.out"));
  expect_codes(pass, "layers.2.mlp_fc2.x", saving.values.at("layers.2.act"));
  for (const char* passed : {"layers.0.gated_norm.out", "layers.1.norm.out", "layers.2.act"})
    EXPECT_FALSE(pass.values.contains(passed)) << passed;
  EXPECT_FALSE(pass.values.contains("layers.2.mlp_fc2.dy_k"));  // That of a backward pass.
}

TEST(Fp8, CountsProductsAndCasts) {
  Scenario s = base();
  s.fp8.save_original_input = {Fp8Layer::qkv_linear};
  const auto data = open_data(s);
  const Counters counters = run(s, *data).counters;
  const std::int64_t trained = 9, evaluated = 3;
  EXPECT_EQ(counters.at(Counter::fp8_products), 18 * trained + 6 * evaluated);
  EXPECT_EQ(counters.at(Counter::fp8_casts), 13 * trained + 6 * evaluated);
  EXPECT_EQ(counters.at(Counter::weight_casts), 6 * (3 + 1));
}

}  // namespace
}  // namespace lockstep::test
