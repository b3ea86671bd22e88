#include "engine/regions.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Scenario with(const std::string& pattern, std::vector<GraphModule> modules, GraphImpl impl = GraphImpl::partial) {
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
    for (const int layer : segment.layers) text += scenario.model.pattern[static_cast<std::size_t>(layer)];
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

TEST(Regions, AreNoneWithoutPartialGraphs) {
  EXPECT_EQ(shape(with("M*-", {}, GraphImpl::none)), "eM e* e- ");
  EXPECT_EQ(shape(with("M*-", {}, GraphImpl::full_iteration)), "eM e* e- ");
}

}  // namespace
}  // namespace lockstep
