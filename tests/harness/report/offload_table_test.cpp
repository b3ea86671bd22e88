// The output of `describe` about an offload plan, before anything runs, is the plan and its
// forecast, in every mode.
#include "harness/report/offload_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>

#include "engine/offload/forecast.h"
#include "engine/offload/time_model.h"
#include "harness/bench/model.h"
#include "scenarios/rules/offload_modules.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

Scenario of_h1(GraphImpl impl, std::int64_t in_flight, std::int64_t quarters) {
  Scenario s = *standard_model("H1");
  s.training.microbatches = 8;
  s.training.in_flight = in_flight;
  s.cuda_graph.impl = GraphImpl::partial;
  s.offload.modules = offloadable_modules(s);
  s.cuda_graph.impl = impl;
  s.offload.fraction = Ratio{quarters * 250'000};
  if (impl == GraphImpl::full_iteration) s.offload.max_inflight = 32;
  return s;
}

template <class Check>
void for_each_plan(const Check& check) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    for (const std::int64_t in_flight : {1, 2, 3, 4}) {
      for (const std::int64_t quarters : {0, 1, 2, 4}) {
        const Scenario scenario = of_h1(impl, in_flight, quarters);
        check(scenario, plan_offload(scenario));
      }
    }
  }
}

TEST(OffloadTable, SaysWhatMovesWhenItComesBackAndHowManyBytes) {
  for_each_plan([](const Scenario&, const OffloadPlan& plan) {
    const boost::json::object json = offload_json(plan);
    std::int64_t bytes = 0;
    ASSERT_EQ(json.at("groups").as_array().size(), plan.groups.size());
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      const OffloadGroup& group = plan.groups[i];
      const boost::json::object& said = json.at("groups").as_array()[i].as_object();
      EXPECT_EQ(said.at("layer").as_int64(), group.layer);
      EXPECT_EQ(said.at("module").as_string(), word(group.module));
      EXPECT_EQ(said.at("stays").as_bool(), group.is_resident);
      EXPECT_EQ(said.at("leaves_after").as_int64(), group.d2h.begin);
      EXPECT_EQ(said.at("returns_from").as_int64(),
                group.is_resident ? 0 : plan.last_step() - group.h2d.begin);
      EXPECT_EQ(said.at("returns_before").as_int64(), plan.last_step() - group.h2d.end);
      EXPECT_EQ(said.at("bytes").as_int64(), group.bytes());
      bytes += group.is_resident ? 0 : group.bytes();
    }
    EXPECT_EQ(json.at("bytes").as_int64(), bytes);
    EXPECT_EQ(json.at("saved_bytes").as_int64(), plan.saved_bytes());
  });
}

// Compute waits for copies back, and for nothing else but what leaves. Of each group at most all is
// hidden.
TEST(OffloadTable, SaysHowMuchIsHidden) {
  for_each_plan([](const Scenario& scenario, const OffloadPlan& plan) {
    const OffloadForecast times = forecast(plan);
    const boost::json::object json = offload_json(plan);
    const boost::json::object& model = json.at("model").as_object();
    double awaited = 0;
    for (const auto& group : json.at("groups").as_array())
      awaited += group.at("awaited_seconds").as_double();
    EXPECT_LE(awaited, model.at("stalled_seconds").as_double() + 1e-9);
    EXPECT_EQ(model.at("slower").as_double(), times.slower());
    EXPECT_EQ(model.at("fits_under_compute").as_bool(), times.fits());
    const std::string text = offload_table(scenario, plan);
    // A toy computes for less than a launch takes: nothing of it can be forecast.
    EXPECT_THAT(text, HasSubstr(times.compute < 10e-6 ? "too small for a forecast"
                                : times.fits()        ? "  fits under compute"
                                                      : "  does not fit under compute"));
  });
  const Scenario toy = [] {
    Scenario scenario;
    scenario.offload.modules = {OffloadModule::core_attn};
    return scenario;
  }();
  EXPECT_THAT(offload_table(toy, plan_offload(toy)),
              AllOf(HasSubstr("too small for a forecast"), Not(HasSubstr("slower"))));
  const Scenario large = of_h1(GraphImpl::partial, 4, 1);
  EXPECT_THAT(offload_table(large, plan_offload(large)), HasSubstr("% slower"));
}

// A quarter of H1 hides, a half does not with one microbatch in flight, all of it never does: both
// sides of the line are seen.
TEST(OffloadTable, KnowsWhatFits) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    EXPECT_TRUE(forecast(plan_offload(of_h1(impl, 4, 1))).fits());
    EXPECT_FALSE(forecast(plan_offload(of_h1(impl, 4, 4))).fits());
    EXPECT_FALSE(forecast(plan_offload(of_h1(impl, 1, 2))).fits());
    const OffloadForecast nothing = forecast(plan_offload(of_h1(impl, 4, 0)));
    EXPECT_TRUE(nothing.fits());
    EXPECT_EQ(nothing.slower(), 0);
  }
}

// With four microbatches in flight copies back begin in forward passes or in backward graphs.
TEST(OffloadTable, SaysWhichCopiesAreNodes) {
  Scenario scenario = of_h1(GraphImpl::partial, 4, 1);
  EXPECT_THAT(offload_table(scenario, plan_offload(scenario)), Not(HasSubstr("nodes of graphs")));
  scenario.offload.captured = true;
  const OffloadPlan plan = plan_offload(scenario);
  const boost::json::object json = offload_json(plan);
  std::int64_t each_way = 0, back = 0;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const OffloadGroup& group = plan.groups[i];
    const boost::json::object& said = json.at("groups").as_array()[i].as_object();
    EXPECT_EQ(said.at("leaves_in_graph").as_bool(), !group.is_resident) << "whole layers";
    EXPECT_EQ(said.at("returns_in_graph").as_bool(), group.returns_in_graph);
    each_way += group.is_resident ? 0 : std::ssize(group.tensors);
    back += group.returns_in_graph ? std::ssize(group.tensors) : 0;
  }
  const std::string of = " of " + std::to_string(each_way);
  EXPECT_THAT(offload_table(scenario, plan),
              HasSubstr("nodes of graphs: " + std::to_string(each_way) + of + " copies out, " +
                        std::to_string(back) + of + " back"));
}

}  // namespace
}  // namespace lockstep
