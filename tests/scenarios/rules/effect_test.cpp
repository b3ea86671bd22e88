// Keys that a scenario has but does not read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "scenarios/rules/check.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;

Scenario edited(const std::function<void(Scenario&)>& edit) {
  Scenario scenario;
  edit(scenario);
  return scenario;
}

TEST(Effect, KeysOfAbsentLayersAndSwitchedOffMachineryAreListed) {
  const auto defaults = keys_without_effect(Scenario{});
  EXPECT_THAT(defaults, IsSupersetOf({"model.moe", "offload", "fsdp.unit", "data.path",
                                      "data.distribution"}));
  EXPECT_THAT(defaults, Not(Contains("model.mamba")));
  const auto other = keys_without_effect(edited([](Scenario& s) {
    s.model.pattern = "E";
    s.cuda_graph.impl = GraphImpl::none;
    s.data.kind = DataKind::distribution;
  }));
  EXPECT_THAT(other,
              IsSupersetOf({"model.attention", "model.mamba", "model.mlp.hidden", "data.documents",
                            "data.distribution.sigma", "cuda_graph.modules"}));
  EXPECT_THAT(other, Not(Contains("model.moe")));
  EXPECT_THAT(other, Not(Contains("model.mlp")));  // Its activation is the experts' too.
}

TEST(Effect, WhatAStrategyDoesNotReadIsListed) {
  const auto keys = [](Sharding strategy, bool double_buffer) {
    return keys_without_effect(edited([&](Scenario& s) {
      s.fsdp.strategy = strategy;
      s.fsdp.double_buffer = double_buffer;
    }));
  };
  EXPECT_THAT(keys(Sharding::optim, true), IsSupersetOf({"fsdp.prefetch", "fsdp.double_buffer",
                                                         "fsdp.persist_buf_on_alloc_fail"}));
  EXPECT_THAT(keys(Sharding::optim, true), Not(Contains("fsdp.unit")));
  EXPECT_THAT(keys(Sharding::optim_grads, true), Contains("fsdp.prefetch"));
  EXPECT_THAT(keys(Sharding::optim_grads, true), Not(Contains("fsdp.double_buffer")));
  EXPECT_THAT(keys(Sharding::optim_grads_params, true),
              Not(Contains(testing::StartsWith("fsdp."))));
  EXPECT_THAT(keys(Sharding::optim_grads_params, false),
              Contains("fsdp.persist_buf_on_alloc_fail"));
}

TEST(Effect, BytesThatLaterStagesKeepNeedSeveralStages) {
  const auto keys = [](std::int64_t stages) {
    return keys_without_effect(edited([&](Scenario& s) {
      s.offload.modules = {OffloadModule::core_attn};
      s.parallel.pipeline = stages;
    }));
  };
  EXPECT_THAT(keys(1), Contains("offload.delta_bytes"));
  EXPECT_THAT(keys(2), Not(Contains("offload.delta_bytes")));
}

}  // namespace
}  // namespace lockstep
