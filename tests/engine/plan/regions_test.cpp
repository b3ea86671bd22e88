#include "engine/plan/regions.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Scenario with(const std::string& pattern, std::vector<GraphModule> modules,
              GraphImpl impl = GraphImpl::partial) {
  Scenario s;
  s.model.pattern = pattern;
  s.cuda_graph.impl = impl;
  s.cuda_graph.modules = std::move(modules);
  return s;
}
std::string shape(const Scenario& scenario) {
  std::string text;
  for (const Segment& segment : segments(scenario)) {
    text += segment.region < 0 ? "e" : std::to_string(segment.region);
    for (const Part& part : segment.parts) {
      const char symbol = scenario.model.pattern[static_cast<std::size_t>(part.layer)];
      text += symbol;
      if (symbol != 'E') continue;
      for (const Stage stage : {Stage::router, Stage::preprocess, Stage::experts}) {
        if (part.has(stage)) text += "rpx"[static_cast<int>(stage)];
      }
    }
    text += " ";
  }
  return text;
}

TEST(Regions, TakeTheCapturedPartsOfABlockTogether) {
  EXPECT_EQ(shape(with("M*-", {})), "0M 1*- ");
  EXPECT_EQ(shape(with("M-M*-", {GraphModule::attn, GraphModule::mlp})), "eM 0- eM 1*- ");
  EXPECT_EQ(shape(with("M*-*", {GraphModule::attn})), "eM 0* e- 1* ");
  EXPECT_EQ(shape(with("M*-", {GraphModule::mlp})), "eM e* 0- ");
  EXPECT_EQ(shape(with("**--", {})), "0* 1*- 2- ");
}

TEST(Regions, EndInsideALayerOfExperts) {
  using enum GraphModule;
  EXPECT_EQ(shape(with("*EE", {})), "0*Erpx 1Erpx ");
  EXPECT_EQ(shape(with("*E", {moe})), "e* 0Erpx ");
  EXPECT_EQ(shape(with("*E", {attn})), "0* eErpx ");
  EXPECT_EQ(shape(with("*E*E", {attn, moe_router})), "0*Er eEpx 1*Er eEpx ");
  EXPECT_EQ(shape(with("*E", {moe_router})), "e* 0Er eEpx ");
  EXPECT_EQ(shape(with("M*E-", {mamba, attn, mlp, moe_router, moe_preprocess})),
            "0M 1*Erp eEx 2- ");
  EXPECT_EQ(shape(with("*E", {}, GraphImpl::none)), "e* eErpx ");
}

TEST(Regions, AreNoneWithoutPartialGraphs) {
  EXPECT_EQ(shape(with("M*-", {}, GraphImpl::none)), "eM e* e- ");
  EXPECT_EQ(shape(with("M*-", {}, GraphImpl::full_iteration)), "eM e* e- ");
}

}  // namespace
}  // namespace lockstep
