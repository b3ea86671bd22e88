// On a GPU: a missing edge inside of a captured graph that changes no bit in that run, and one that
// only a delay shows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/checker/checker.h"
#include "harness/judge/runner.h"
#include "harness/run/run_case.h"
#include "kernels/ops/accumulate.h"
#include "tests/engine/device/on_sim.h"
#include "tests/support/program.h"

namespace lockstep::test {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Outcome {
  std::vector<Hazard> hazards;
  std::vector<float> bits;
};

// A gradient is produced on a side stream and accumulated on the main one, both captured. The main
// stream has a hundred ops to do first, so that without the edge the gradient is there in time all
// the same.
Outcome replayed(std::unique_ptr<Backend> backend, bool joined_before_use) {
  Checker checker({.stop = false, .dropped = {}});
  Outcome outcome;
  {
    Device device(std::move(backend), &checker);
    const Stream main(device, "compute"), side(device, "side");
    const Event fork(device), join(device);
    const Floats g(device, 4096), acc(device, 4096), one(device, 4096), busy(device, 4096);
    write(main, one, 1);
    write(main, g, 0);
    main.submit(ZeroGradient{.acc = acc.row()});
    main.synchronize();
    main.begin_capture();
    main.record(fork);
    side.wait(fork);
    side.submit(AccumulateGradient{.g = one.row(), .acc = g.row()});
    side.record(join);
    if (joined_before_use) main.wait(join);
    for (int i = 0; i < 100; ++i) main.submit(ZeroGradient{.acc = busy.row()});
    main.submit(AccumulateGradient{.g = g.row(), .acc = acc.row()});
    if (!joined_before_use) main.wait(join);
    const Graph graph = main.end_capture();
    for (int i = 0; i < 3; ++i) {
      main.launch(graph);
      main.synchronize();
    }
    outcome.bits = read(main, acc);
  }
  outcome.hazards = distinct(checker.hazards());
  return outcome;
}

TEST(CheckerCuda, SeesAMissingEdgeInAGraphThatChangesNoBit) {
  const Outcome right = replayed(open_cuda(), true), lucky = replayed(open_cuda(), false);
  EXPECT_EQ(right.bits, std::vector<float>(4096, 6.0f));  // 1 + 2 + 3.
  EXPECT_EQ(lucky.bits, right.bits);
  EXPECT_TRUE(right.hazards.empty()) << text(right.hazards.front());
  ASSERT_FALSE(lucky.hazards.empty());
  EXPECT_EQ(lucky.hazards.front().kind, HazardKind::read_after_write);
  const std::string report = text(lucky.hazards.front());
  EXPECT_THAT(report, HasSubstr("Missing edge: side"));
  EXPECT_THAT(report, HasSubstr("While the graph is captured, record an event on side"));
  std::printf("%s\n", report.c_str());
}

// The wait for the documents is left out, and nobody judges the order: only bits count.
TEST(CheckerCuda, ADelayShowsAMissingWaitInTheBits) {
  const std::string file = library_file("delayed-loader-unchecked");
  const Ran right = run_lockstep("verify --quiet --device cuda " + file);
  const Ran wrong =
      run_lockstep("verify --quiet --device cuda --plant compute-ignores-loaded-event " + file);
  EXPECT_EQ(right.status, 0) << right.out << right.err;
  EXPECT_EQ(wrong.status, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out, Not(HasSubstr("violated by hazard")));
}

TEST(CheckerCuda, DelaysInsideAndOutsideOfGraphsAndPoisonChangeNoBit) {
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    Scenario scenario;
    scenario.name = "pressure";
    scenario.numerics = {Numerics::fp32};
    scenario.cuda_graph.impl = impl;
    scenario.checker.poison = {Poison::fresh, Poison::freed, Poison::padding, Poison::staging};
    scenario.checker.delays = {{DelayStream::compute, {}, 20}, {DelayStream::loader, {}, 300}};
    if (impl != GraphImpl::none) scenario.checker.delays.push_back({DelayStream::graph, {}, 20});
    const CaseResult result = run_case(scenario, {.device = "cuda"});
    EXPECT_EQ(result.verdict, Verdict::holds) << result.reason;
    EXPECT_GT(result.counters.at(Counter::delays_applied), 100);
    EXPECT_GT(result.counters.at(Counter::bytes_poisoned_padding), 1000);
  }
}

}  // namespace
}  // namespace lockstep::test
