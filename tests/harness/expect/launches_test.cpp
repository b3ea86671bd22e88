#include "harness/expect/launches.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// What the part of the run between the two points must count.
std::int64_t counted(const Scenario& scenario, Counter counter, const RunPoint& from,
                     const RunPoint& to) {
  const auto data = open_data(scenario);
  for (const Expectation& one : launches_of_part(scenario, *data, from, to)) {
    if (one.counter != counter) continue;
    EXPECT_EQ(one.min, one.max);
    return one.min;
  }
  ADD_FAILURE() << "not expected";
  return -1;
}

// Four microbatches a step on two ranks, two regions, warm-up of one step.
Scenario of_two_ranks() {
  Scenario scenario;
  scenario.training.steps = 4;
  scenario.training.microbatches = 2;
  scenario.training.eval_every = 2;
  scenario.fsdp.strategy = Sharding::optim_grads;
  scenario.parallel.data = 2;
  scenario.data.documents = {{{20}, {30}, {5, 6}, {7}}};
  return scenario;
}

TEST(LaunchesOfAPart, WarmUpIsOfTheRun) {
  const Scenario scenario = of_two_ranks();
  const auto replays = [&](const RunPoint& from, const RunPoint& to) {
    return counted(scenario, Counter::graph_replays, from, to);
  };
  EXPECT_EQ(replays({0, 0}, {1, 0}), 0);
  EXPECT_EQ(replays({0, 0}, {4, 0}), 3 * 2 * 4);
  EXPECT_EQ(replays({1, 0}, {4, 0}), 3 * 2 * 4);
  EXPECT_EQ(replays({3, 0}, {4, 0}), 2 * 4);
  // Both parts of a step have their microbatches alone.
  EXPECT_EQ(replays({0, 0}, {2, 1}), 2 * 4 + 4);
  EXPECT_EQ(replays({2, 1}, {4, 0}), 4 + 2 * 4);
}

TEST(LaunchesOfAPart, AnEvaluationBelongsToThePartThatEndsItsStep) {
  Scenario scenario = of_two_ranks();
  scenario.cuda_graph.evaluation = GraphEvaluation::replay;
  const auto replays = [&](const RunPoint& from, const RunPoint& to) {
    return counted(scenario, Counter::evaluation_replays, from, to);
  };
  EXPECT_EQ(replays({0, 0}, {1, 1}), 0);
  EXPECT_EQ(replays({1, 1}, {2, 0}), 4);
  EXPECT_EQ(replays({2, 0}, {4, 0}), 4);
}

TEST(LaunchesOfAPart, FallbacksAreThoseOfItsMicrobatches) {
  Scenario scenario = of_two_ranks();
  scenario.cuda_graph.max_packed_seqs = {1};  // The third of four microbatches has two documents.
  const auto fallbacks = [&](const RunPoint& from, const RunPoint& to) {
    return counted(scenario, Counter::fallbacks_documents, from, to);
  };
  EXPECT_EQ(fallbacks({2, 0}, {2, 1}), 0);
  EXPECT_EQ(fallbacks({2, 1}, {3, 0}), 1);
  EXPECT_EQ(counted(scenario, Counter::graph_replays, {2, 0}, {2, 1}), 4);
  EXPECT_EQ(counted(scenario, Counter::graph_replays, {2, 1}, {3, 0}), 0);
}

TEST(LaunchesOfAPart, AGraphOfAWholeStepRunsNoPartOfOne) {
  Scenario scenario = of_two_ranks();
  scenario.cuda_graph.impl = GraphImpl::full_iteration;
  scenario.training.eval_every = 0;
  const auto count = [&](Counter counter, const RunPoint& from, const RunPoint& to) {
    return counted(scenario, counter, from, to);
  };
  EXPECT_EQ(count(Counter::graph_replays, {1, 0}, {2, 1}), 1);
  EXPECT_EQ(count(Counter::fallbacks_cut, {1, 0}, {2, 1}), 0);
  EXPECT_EQ(count(Counter::graph_replays, {2, 1}, {4, 0}), 1);
  EXPECT_EQ(count(Counter::fallbacks_cut, {2, 1}, {4, 0}), 1);
  scenario.cuda_graph.max_packed_seqs = {1};
  EXPECT_EQ(count(Counter::fallbacks_cut, {2, 1}, {4, 0}), 0);
  EXPECT_EQ(count(Counter::fallbacks_documents, {2, 1}, {4, 0}), 2);
}

TEST(LaunchesOfAPart, ThereAreNoneWithoutGraphs) {
  Scenario scenario = of_two_ranks();
  scenario.cuda_graph.impl = GraphImpl::none;
  EXPECT_EQ(counted(scenario, Counter::graph_replays, {1, 0}, {4, 0}), 0);
}

}  // namespace
}  // namespace lockstep
