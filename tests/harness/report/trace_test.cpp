// Traces: what ran is put beside what was asked for, events become flows, a missing edge is drawn
// where it is, and ranks are told apart.
#include "harness/report/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "harness/cli/trace_run.h"
#include "harness/report/trace_text.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

Scenario small(GraphImpl impl) {
  Scenario scenario;
  scenario.name = "traced";
  scenario.cuda_graph.impl = impl;
  return scenario;
}

std::string told(const Trace& trace, std::size_t i) {
  const TraceItem& item = trace.items[i];
  return item.what + " " + std::to_string(item.place.step) + " " + item.place.part;
}

TEST(Trace, EqualSeedEqualOrder) {
  const Scenario scenario = small(GraphImpl::partial);
  EXPECT_EQ(schedule_text(trace_case(scenario, {})), schedule_text(trace_case(scenario, {})));
}

TEST(Trace, AnotherSeedRunsTheSameItemsInAnotherOrder) {
  Scenario scenario = small(GraphImpl::partial);
  const Trace one = trace_case(scenario, {});
  scenario.checker.schedule.seed += 1;
  const Trace other = trace_case(scenario, {});
  EXPECT_NE(schedule_text(one), schedule_text(other));
  std::vector<std::string> a, b;
  for (std::size_t i = 0; i < one.items.size(); ++i) a.push_back(told(one, i));
  for (std::size_t i = 0; i < other.items.size(); ++i) b.push_back(told(other, i));
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  EXPECT_EQ(a, b);
}

// The effect of a delay is in the order; the delays themselves are no items.
TEST(Trace, DelaysAreThoseOfTheScenario) {
  Scenario scenario = small(GraphImpl::partial);
  const Trace plain = trace_case(scenario, {});
  scenario.checker.delays = {{.stream = DelayStream::loader, .rank = {}, .spin = 300}};
  const Trace delayed = trace_case(scenario, {});
  EXPECT_EQ(delayed.ended, "");
  EXPECT_EQ(delayed.items.size(), plain.items.size());
  EXPECT_NE(schedule_text(delayed), schedule_text(plain));
}

// A record completes before its waiter begins, whatever the schedule.
TEST(Trace, EveryEventLeadsForward) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    const Trace trace = trace_case(small(impl), {});
    EXPECT_EQ(trace.ended, "");
    EXPECT_FALSE(trace.flows.empty());
    for (const TraceFlow& flow : trace.flows) EXPECT_LT(flow.from, flow.to) << flow.name;
  }
}

TEST(Trace, LaunchesHoldTheirItems) {
  const Trace trace = trace_case(small(GraphImpl::partial), {});
  ASSERT_FALSE(trace.launches.empty());
  std::size_t inside = 0;
  for (std::size_t i = 0; i < trace.items.size(); ++i) {
    const int launch = trace.items[i].launch;
    if (launch < 0) continue;
    ++inside;
    const TraceLaunch& of = trace.launches.at(static_cast<std::size_t>(launch));
    EXPECT_TRUE(of.first <= static_cast<int>(i) && static_cast<int>(i) <= of.last);
    EXPECT_GE(trace.items[i].place.layer, 0);  // Modules are layers' parts.
  }
  EXPECT_GT(inside, 0u);
  EXPECT_TRUE(trace_case(small(GraphImpl::none), {}).launches.empty());
}

TEST(Trace, PerfettoFindsTracksSlicesAndBothEndsOfEachFlow) {
  const Trace trace = trace_case(small(GraphImpl::partial), {});
  const auto whole = boost::json::parse(trace_json(trace, "traced")).as_object();
  std::map<std::string, std::size_t> phases;
  for (const auto& event : whole.at("traceEvents").as_array())
    phases[event.at("ph").as_string().c_str()]++;
  std::size_t launches = 0;
  for (const TraceLaunch& launch : trace.launches) launches += launch.first >= 0;
  EXPECT_EQ(phases["X"], trace.items.size() + launches);
  EXPECT_EQ(phases["s"], trace.flows.size());
  EXPECT_EQ(phases["f"], trace.flows.size());
  EXPECT_GT(phases["M"], trace.streams.size());
}

TEST(Trace, DrawsAMissingEdgeBetweenItsItems) {
  Trace trace;
  trace.streams = {{"compute"}, {"loader"}};
  trace.items = {{.stream = 1, .what = "copy", .place = {.step = 0}},
                 {.stream = 0, .what = "linear", .place = {.step = 0}}};
  const TracePoint copy{.stream = "loader", .what = "copy", .place = {.step = 0}};
  const TracePoint linear{.stream = "compute", .what = "linear", .place = {.step = 0}};
  EXPECT_TRUE(add_missing_edge(trace, copy, linear, "no wait"));
  ASSERT_EQ(trace.flows.size(), 1u);
  EXPECT_EQ(trace.flows[0].from, 0);
  EXPECT_EQ(trace.flows[0].to, 1);
  EXPECT_THAT(trace_json(trace, "a"), testing::HasSubstr("\"missing edge\""));
  EXPECT_FALSE(add_missing_edge(trace, copy,
                                {.stream = "compute", .what = "linear", .place = {.step = 1}}, ""));
}

Scenario offloading(GraphImpl impl) {
  Scenario scenario = small(impl);
  scenario.offload.modules = offloadable_modules(scenario);
  return scenario;
}

// The start and the end of each flow, by its number.
std::map<std::int64_t, std::map<std::string, boost::json::object>> flows_of(const Trace& trace) {
  std::map<std::int64_t, std::map<std::string, boost::json::object>> flows;
  const auto whole = boost::json::parse(trace_json(trace, "a"));
  for (const auto& event : whole.at("traceEvents").as_array()) {
    const std::string phase(event.at("ph").as_string());
    if (phase == "s" || phase == "f") flows[event.at("id").as_int64()][phase] = event.as_object();
  }
  return flows;
}

// Perfetto drops a flow that begins after its end. Here the copies run before the ops that write
// what they copy.
TEST(Trace, AMissingEdgeIsDrawnFromWhatRanFirst) {
  const Trace trace =
      trace_case(offloading(GraphImpl::none),
                 {.device = "sim", .planted = {.engine = "offload-ignores-compute"}});
  std::map<std::string, int> began;
  for (const auto& [id, flow] : flows_of(trace)) {
    const auto &start = flow.at("s"), &end = flow.at("f");
    EXPECT_LT(start.at("ts").as_int64(), end.at("ts").as_int64()) << id;
    if (start.at("cat") != "hazard") continue;
    const std::string first(start.at("args").at("program_order").as_string());
    EXPECT_EQ(end.at("args").at("program_order"), first == "first" ? "second" : "first");
    ++began[first];
  }
  EXPECT_GT(began["second"], 0);
}

// A viewer that shows no arguments of flows shows those of slices.
TEST(Trace, ASliceTellsItsMissingEdges) {
  Trace trace;
  trace.streams = {{"compute"}, {"d2h"}};
  trace.items = {{.stream = 1, .what = "copy", .place = {}},
                 {.stream = 0, .what = "linear", .place = {}}};
  trace.flows = {{1, 0, "missing edge", "no wait"}};
  const auto whole = boost::json::parse(trace_json(trace, "a"));
  std::map<std::string, std::string> told;
  for (const auto& event : whole.at("traceEvents").as_array()) {
    if (event.at("ph") != "X") continue;
    const auto& edge = event.at("args").at("missing_edges").at(0);
    EXPECT_EQ(edge.at("detail"), "no wait");
    told[event.at("name").as_string().c_str()] = edge.at("program_order").as_string().c_str();
  }
  EXPECT_EQ(told, (std::map<std::string, std::string>{{"copy", "second"}, {"linear", "first"}}));
}

// A hazard names a copy by its bytes, where one place has several copies.
TEST(Trace, AMissingEdgeEndsAtTheCopyOfItsBytes) {
  Trace trace;
  trace.streams = {{"compute"}, {"d2h"}};
  trace.items = {{.stream = 1, .what = "copy", .place = {}, .bytes = 64},
                 {.stream = 1, .what = "copy", .place = {}, .bytes = 128},
                 {.stream = 0, .what = "linear", .place = {}}};
  const TracePoint linear{.stream = "compute", .what = "linear", .place = {}};
  EXPECT_TRUE(add_missing_edge(trace, linear,
                               {.stream = "d2h", .what = "copy", .place = {}, .bytes = 128}, ""));
  EXPECT_EQ(trace.flows.back().to, 1);
  EXPECT_FALSE(add_missing_edge(trace, linear,
                                {.stream = "d2h", .what = "copy", .place = {}, .bytes = 32}, ""));
}

Trace two_ranks() {
  Trace trace;
  trace.streams = {{"compute", 0}, {"compute", 1}, {"d2h", 1}};
  trace.items = {{.stream = 0, .what = "linear", .place = {.step = 0}},
                 {.stream = 1, .what = "linear", .place = {.step = 0, .rank = 1}, .launch = 0},
                 {.stream = 2,
                  .what = "copy",
                  .place = {.step = 0, .layer = 3, .rank = 1, .part = "offload"},
                  .bytes = 64,
                  .tensor = "layers.3.qkv"}};
  trace.launches = {{.stream = 1, .first = 1, .last = 1}};
  return trace;
}

TEST(Trace, EachRankIsAProcess) {
  const auto whole = boost::json::parse(trace_json(two_ranks(), "both"));
  std::map<std::string, std::set<std::int64_t>> processes;
  std::string slices;
  for (const auto& event : whole.at("traceEvents").as_array()) {
    const std::int64_t process = event.at("pid").as_int64();
    if (event.at("ph") == "M") {
      processes[event.at("args").at("name").as_string().c_str()].insert(process);
    } else {
      slices += std::string(event.at("name").as_string()) + " " + std::to_string(process) + " " +
                std::to_string(event.at("args").at("rank").as_int64()) + ", ";
    }
  }
  EXPECT_EQ(processes, (std::map<std::string, std::set<std::int64_t>>{{"rank 0", {1}},
                                                                      {"rank 1", {2}},
                                                                      {"compute", {1, 2}},
                                                                      {"compute: graphs", {2}},
                                                                      {"d2h", {2}}}));
  EXPECT_EQ(slices, "linear 1 0, linear 2 1, copy 2 1, graph 0 2 1, ");
}

TEST(Trace, TheScheduleNamesRanksAndWhatIsCopied) {
  EXPECT_EQ(schedule_text(two_ranks()),
            "     0  rank 0  compute      linear                       step 0\n"
            "     1  rank 1  compute      linear                       step 0 (graph 0, launch 0)\n"
            "     2  rank 1  d2h          copy qkv                     step 0 layer 3 offload\n");
}

// Programs may read it.
TEST(Trace, OneRankIsNotNamed) {
  Trace trace;
  trace.streams = {{"compute"}};
  trace.items = {{.stream = 0, .what = "linear", .place = {.step = 0}}};
  EXPECT_EQ(schedule_text(trace), "     0  compute      linear                       step 0\n");
  EXPECT_THAT(trace_json(trace, "one"), testing::HasSubstr("\"lockstep: one\""));
}

// Both ranks have a stream of that name.
TEST(Trace, AMissingEdgeIsDrawnOnItsRank) {
  Trace trace = two_ranks();
  EXPECT_TRUE(add_missing_edge(
      trace, {.stream = "compute", .what = "linear", .place = {.step = 0, .rank = 0}},
      {.stream = "d2h",
       .what = "copy",
       .place = {.step = 0, .layer = 3, .rank = 1, .part = "offload"}},
      ""));
  EXPECT_EQ(trace.flows.back().from, 0);
  trace.items[1].launch = -1;
  EXPECT_TRUE(add_missing_edge(
      trace, {.stream = "compute", .what = "linear", .place = {.step = 0, .rank = 1}},
      {.stream = "d2h",
       .what = "copy",
       .place = {.step = 0, .layer = 3, .rank = 1, .part = "offload"}},
      ""));
  EXPECT_EQ(trace.flows.back().from, 1);
}

TEST(Trace, StreamsBelongToTheRankThatMadeThem) {
  Scenario scenario = small(GraphImpl::partial);
  scenario.parallel.data = 2;
  const Trace trace = trace_case(scenario, {});
  EXPECT_EQ(trace.ended, "");
  std::map<std::string, std::set<int>> ranks;
  for (const TraceStream& stream : trace.streams) ranks[stream.name].insert(stream.rank);
  EXPECT_EQ(ranks.at("compute"), (std::set<int>{0, 1}));
  for (const TraceItem& item : trace.items) {
    if (item.place.step < 0) continue;
    EXPECT_EQ(item.place.rank, trace.streams.at(static_cast<std::size_t>(item.stream)).rank);
  }
}

TEST(Trace, EveryCopyOfOffloadingNamesItsTensor) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::full_iteration}) {
    std::map<std::string, int> copies;
    for (const TraceItem& item : trace_case(offloading(impl), {}).items) {
      const std::string part = item.place.part;
      if (part != "offload" && part != "reload") continue;
      EXPECT_GT(item.bytes, 0);
      copies[item.tensor] += part == "offload" ? 1 : -1;
    }
    EXPECT_GT(copies.size(), 1u);
    EXPECT_EQ(copies.count(""), 0u);
    for (const auto& [tensor, surplus] : copies) EXPECT_EQ(surplus, 0) << tensor;
  }
}

// Nothing goes wrong in program order, so only the checker knows.
TEST(Trace, DrawsTheEdgeThatAPlantedFaultTookAway) {
  Scenario scenario = small(GraphImpl::partial);
  scenario.checker.schedule.kind = ScheduleKind::program;
  const auto missing = [&](const std::string& fault) {
    const Trace trace = trace_case(scenario, {.device = "sim", .planted = {.engine = fault}});
    return std::count_if(trace.flows.begin(), trace.flows.end(),
                         [](const TraceFlow& f) { return f.name == "missing edge"; });
  };
  EXPECT_EQ(missing(""), 0);
  EXPECT_GT(missing("compute-ignores-loaded-event"), 0);
}

}  // namespace
}  // namespace lockstep
