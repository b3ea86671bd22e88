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
#include "scenarios/pass_order.h"
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
  for_each_plan([](const Scenario& scenario, const OffloadPlan& plan) {
    const boost::json::object json = offload_json(scenario).front().as_object();
    std::int64_t bytes = 0;
    ASSERT_EQ(json.at("groups").as_array().size(), plan.groups.size());
    for (std::size_t i = 0; i < plan.groups.size(); ++i) {
      const OffloadGroup& group = plan.groups[i];
      const boost::json::object& said = json.at("groups").as_array()[i].as_object();
      EXPECT_EQ(said.at("layer").as_int64(), group.layer);
      EXPECT_EQ(said.at("module").as_string(), word(group.module));
      EXPECT_EQ(said.at("stays").as_bool(), group.is_resident);
      EXPECT_EQ(said.at("stays_for").as_string(), group.is_resident ? "offload.fraction" : "");
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
    const boost::json::object json = offload_json(scenario).front().as_object();
    const boost::json::object& model = json.at("model").as_object();
    double awaited = 0;
    for (const auto& group : json.at("groups").as_array())
      awaited += group.at("awaited_seconds").as_double();
    EXPECT_LE(awaited, model.at("stalled_seconds").as_double() + 1e-9);
    EXPECT_EQ(model.at("slower").as_double(), times.slower());
    EXPECT_EQ(model.at("fits_under_compute").as_bool(), times.fits());
    const std::string text = offload_tables(scenario);
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
  EXPECT_THAT(offload_tables(toy),
              AllOf(HasSubstr("too small for a forecast"), Not(HasSubstr("slower"))));
  const Scenario large = of_h1(GraphImpl::partial, 4, 1);
  EXPECT_THAT(offload_tables(large), HasSubstr("% slower"));
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

// The plan of each stage shows what stays and why, and a table what each rank moves.
TEST(OffloadTable, SaysWhatStagesKeepAndRanksMove) {
  Scenario s;
  s.model.pattern = "*-*-";
  s.offload.modules = {OffloadModule::core_attn, OffloadModule::mlp_fc1};
  s.parallel.pipeline = s.parallel.data = 2;
  s.training.in_flight = 2;
  s.offload.delta_bytes = 1;
  s.offload.fraction = Ratio{500'000};
  const std::string text = offload_tables(s);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\nstage 0\n\noffload plan of rank 0 (fp32)"),
                    HasSubstr("      1  mlp_fc1               8192 B  stays: offload.fraction\n"),
                    HasSubstr("\nstage 1\n\noffload plan of rank 2 (fp32)"),
                    HasSubstr("      2  core_attn            16896 B  stays: "
                              "offload.delta_bytes\n")));
  EXPECT_THAT(text, testing::EndsWith("\nbytes of a microbatch that each rank offloads\n"
                                      "   rank      core_attn        mlp_fc1           total\n"
                                      "      0          16896              0           16896\n"
                                      "      1          16896              0           16896\n"
                                      "      2              0           8192            8192\n"
                                      "      3              0           8192            8192\n"
                                      "  total          33792          16384           50176\n"));
  const boost::json::object json = offload_json(s).at(1).as_object();
  EXPECT_EQ(json.at("stage").as_int64(), 1);
  const boost::json::object& kept = json.at("groups").as_array().front().as_object();
  EXPECT_EQ(kept.at("rank").as_int64(), 2);
  EXPECT_EQ(kept.at("stays_for").as_string(), "offload.delta_bytes");
  s.parallel.pipeline = 1;
  EXPECT_THAT(offload_tables(s), Not(HasSubstr("rank offloads")));
  s.offload.modules.clear();
  EXPECT_EQ(offload_tables(s), "");
}

// Chunks share one modelled step, and say how far ahead of their own pass copies begin.
TEST(OffloadTable, SaysWhatAllChunksCostTogether) {
  Scenario s = of_h1(GraphImpl::none, 1, 1);
  s.parallel.chunks = 2;
  s.parallel.schedule = PipelineSchedule::interleaved;
  s.training.in_flight = scheduled_depth(s);
  const std::string text = offload_tables(s);
  const std::size_t all = text.find("\nall chunks of the stage\n");
  ASSERT_NE(all, std::string::npos);
  EXPECT_THAT(text.substr(0, all), AllOf(HasSubstr("\nchunk 0\n"), HasSubstr("\nchunk 1\n"),
                                         HasSubstr(" ahead "), Not(HasSubstr("model of a step"))));
  EXPECT_THAT(text.substr(all), HasSubstr("model of a step"));
  const boost::json::array json = offload_json(s);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json.at(1).at("chunk").as_int64(), 1);
  EXPECT_EQ(json.at(0).at("model"), json.at(1).at("model"));
}

// With four microbatches in flight copies back begin in forward passes or in backward graphs.
TEST(OffloadTable, SaysWhichCopiesAreNodes) {
  Scenario scenario = of_h1(GraphImpl::partial, 4, 1);
  EXPECT_THAT(offload_tables(scenario), Not(HasSubstr("nodes of graphs")));
  scenario.offload.captured = true;
  const OffloadPlan plan = plan_offload(scenario);
  const boost::json::object json = offload_json(scenario).front().as_object();
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
  EXPECT_THAT(offload_tables(scenario),
              HasSubstr("nodes of graphs: " + std::to_string(each_way) + of + " copies out, " +
                        std::to_string(back) + of + " back"));
}

}  // namespace
}  // namespace lockstep
