#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "harness/base/errors.h"
#include "harness/packing/capacities.h"
#include "harness/packing/measure.h"
#include "harness/packing/plan.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// ---- The plan -----------------------------------------------------------------------------------

// By what the largest of `together` packs has.
double seconds_of(const PackHistogram& histogram, const PackCosts& costs,
                  const std::vector<std::int64_t>& buckets, int together) {
  double sum = 0, seen = 0, before = 0;
  for (const auto& [documents, count] : histogram) {
    const auto bucket = std::find_if(buckets.begin(), buckets.end(),
                                     [&](std::int64_t b) { return documents <= b; });
    seen += static_cast<double>(count);
    const double upto = std::pow(seen / static_cast<double>(packs(histogram)), together);
    sum += (upto - before) * (bucket == buckets.end() ? costs.eager : costs.replay_at(*bucket));
    before = upto;
  }
  return sum;
}

// Every choice of `count` capacities out of the numbers of documents.
double least_of_all(const PackHistogram& histogram, const PackCosts& costs, std::size_t count,
                    int together) {
  std::vector<std::int64_t> numbers;
  for (const auto& [documents, packs] : histogram)
    numbers.push_back(std::max<std::int64_t>(documents, 1));
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t chosen = 0; chosen < 1u << numbers.size(); ++chosen) {
    std::vector<std::int64_t> buckets;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (chosen >> i & 1) buckets.push_back(numbers[i]);
    }
    if (buckets.size() == count)
      least = std::min(least, seconds_of(histogram, costs, buckets, together));
  }
  return least;
}

RC_GTEST_PROP(PackingPlan, IsTheCheapestOfAllChoices, ()) {
  PackHistogram histogram;
  const int numbers = *rc::gen::inRange(1, 8);
  for (int i = 0; i < numbers; ++i) histogram[*rc::gen::inRange(0, 40)] += *rc::gen::inRange(1, 50);
  const int together = *rc::gen::inRange(1, 5);
  PackCosts costs{.eager = *rc::gen::inRange(1, 100) * 0.25};
  // A graph need not be cheaper than none, nor a small one cheaper than a large one.
  for (int i = 0; i < 4; ++i)
    costs.replay[*rc::gen::inRange(1, 50)] = *rc::gen::inRange(1, 100) * 0.25;
  const std::vector<PackingPlan> plans = cheapest_plans(histogram, costs, 4, together);
  RC_ASSERT(plans.front().buckets.empty());
  for (std::size_t count = 0; count < plans.size(); ++count) {
    const PackingPlan& plan = plans[count];
    RC_ASSERT(plan.buckets.size() == count);
    RC_ASSERT(std::is_sorted(plan.buckets.begin(), plan.buckets.end()));
    // Sums in another order.
    RC_ASSERT(std::abs(plan.seconds - seconds_of(histogram, costs, plan.buckets, together)) < 1e-9);
    RC_ASSERT(std::abs(plan.seconds - least_of_all(histogram, costs, count, together)) < 1e-9);
  }
}

TEST(PackingPlan, AsManyBucketsAsPay) {
  // Half of the packs are small, one in a hundred is huge; a large capacity costs twice a small
  // one.
  const PackHistogram histogram{{4, 50}, {16, 49}, {300, 1}};
  const PackCosts costs{.replay = {{4, 1.0}, {16, 1.1}, {300, 2.0}}, .eager = 10};
  const std::vector<PackingPlan> plans = cheapest_plans(histogram, costs, 8);
  ASSERT_EQ(plans.size(), 4u);  // As many as there are numbers, and none.
  EXPECT_DOUBLE_EQ(plans[0].seconds, 10);
  EXPECT_THAT(plans[1].buckets,
              ElementsAre(16));  // The huge one falls back: cheaper than 2 for all.
  EXPECT_DOUBLE_EQ(plans[1].seconds, (99 * 1.1 + 10) / 100);
  EXPECT_DOUBLE_EQ(plans[1].replayed, 0.99);
  // A hundred packs that share a decision all fit with a chance of 0.99^100: a capacity for all of
  // them is better.
  EXPECT_THAT(cheapest_plans(histogram, costs, 1, 100)[1].buckets, ElementsAre(300));
  EXPECT_THAT(plans[2].buckets, ElementsAre(16, 300));
  EXPECT_THAT(plans[3].buckets, ElementsAre(4, 16, 300));
  EXPECT_THAT(proposed(plans, 0).buckets, ElementsAre(4, 16, 300));
  EXPECT_THAT(proposed(plans, 0.05).buckets, ElementsAre(16, 300));  // A third bucket saves 4.5 %.
  EXPECT_THAT(proposed(plans, 0.2).buckets, ElementsAre(16));
}

TEST(PackingPlan, AGraphThatNeverPaysIsNotProposed) {
  const PackCosts costs{.replay = {{1, 3.0}}, .eager = 2};
  EXPECT_TRUE(proposed(cheapest_plans({{7, 3}}, costs, 8), 0.005).buckets.empty());
}

// By hand: 99 of 100 packs fit 16 places; a replay at 16 costs 1.1 where the 50 small ones could
// have 1.0.
TEST(PackingPlan, OfOneCapacityHasItsPrice) {
  const PackHistogram histogram{{4, 50}, {16, 49}, {300, 1}};
  const PackCosts costs{.replay = {{4, 1.0}, {16, 1.1}, {300, 2.0}}, .eager = 10};
  const CapacityUse use = use_of(histogram, costs, 16);
  EXPECT_DOUBLE_EQ(use.replayed, 0.99);
  EXPECT_DOUBLE_EQ(use.seconds, 0.99 * 1.1 + 0.01 * 10);
  EXPECT_NEAR(use.padding, 0.1 * 50 / 99, 1e-12);
  EXPECT_DOUBLE_EQ(use_of(histogram, costs, 20).replayed, 0.99);
  EXPECT_DOUBLE_EQ(use_of(histogram, costs, 3).replayed, 0);
  EXPECT_DOUBLE_EQ(use_of(histogram, costs, 3).seconds, 10);
  EXPECT_DOUBLE_EQ(share_replayed(histogram, 4, 2), 0.25);
}

RC_GTEST_PROP(PackingPlan, OfOneBucketIsTheUseOfItsCapacity, ()) {
  PackHistogram histogram;
  for (int i = 0; i < 4; ++i) histogram[*rc::gen::inRange(0, 40)] += *rc::gen::inRange(1, 50);
  const int together = *rc::gen::inRange(1, 5);
  PackCosts costs{.eager = *rc::gen::inRange(1, 100) * 0.25};
  for (int i = 0; i < 3; ++i)
    costs.replay[*rc::gen::inRange(1, 50)] = *rc::gen::inRange(1, 100) * 0.25;
  const PackingPlan plan = cheapest_plans(histogram, costs, 1, together)[1];
  const CapacityUse use = use_of(histogram, costs, plan.buckets.front(), together);
  RC_ASSERT(std::abs(use.seconds - plan.seconds) < 1e-9);
  RC_ASSERT(use.replayed == plan.replayed);
}

TEST(NamedCapacities, AreNumbersPercentilesAndTheLargest) {
  const PackHistogram histogram{{0, 1}, {12, 50}, {106, 48}, {358, 1}};
  std::vector<std::int64_t> capacities;
  for (const NamedCapacity& one : named_capacities("64,p50,P99,p99.5,p1,max", histogram))
    capacities.push_back(one.capacity);
  EXPECT_THAT(capacities, ElementsAre(64, 12, 106, 358, 1, 358));
  for (const char* bad : {"", "64,", "x", "0", "65537", "p0", "p101", "p", "64;12", "-3"})
    EXPECT_THROW(named_capacities(bad, histogram), RequestError) << bad;
}

// Keys that need graphs, or that are about other documents, are no hindrance.
TEST(PackCosts, AreMeasuredOfAnyModel) {
  Scenario s;
  s.cuda_graph.max_seqlen = 2;
  s.training.eval_every = 1;
  s.cuda_graph.evaluation = GraphEvaluation::replay;
  s.offload.modules = {OffloadModule::core_attn};
  s.offload.captured = true;
  const PackCosts costs = measure_costs(s, 3, 9, "sim", 0.001);
  EXPECT_GT(costs.eager, 0);
  EXPECT_THAT(costs.replay, testing::SizeIs(3));  // 3, 6, 9.
}

TEST(PackCosts, LieOnLinesBetweenWhatWasMeasured) {
  const PackCosts costs{.replay = {{10, 1.0}, {20, 2.0}}, .eager = 9};
  EXPECT_DOUBLE_EQ(costs.replay_at(1), 1);
  EXPECT_DOUBLE_EQ(costs.replay_at(10), 1);
  EXPECT_DOUBLE_EQ(costs.replay_at(15), 1.5);
  EXPECT_DOUBLE_EQ(costs.replay_at(20), 2);
  EXPECT_DOUBLE_EQ(costs.replay_at(30), 2);
}

// ---- The histogram ------------------------------------------------------------------------------

class HistogramFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  ~HistogramFile() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "lockstep_histogram_" + std::to_string(::getpid());
};

TEST_F(HistogramFile, HasDocumentsAndPacksOnALine) {
  const PackHistogram read =
      read_histogram(write("# documents packs\n\n12 3\r\n 7,\t2 # why\n12;1\n9 0\n"));
  EXPECT_THAT(read, ElementsAre(Pair(7, 2), Pair(12, 4)));
  EXPECT_EQ(packs(read), 6);
  EXPECT_EQ(percentile(read, 0.3), 7);
  EXPECT_EQ(percentile(read, 0.5), 12);
  EXPECT_EQ(percentile(read, 1), 12);
}

TEST_F(HistogramFile, WhatIsWrongIsNamedWithItsLine) {
  for (const auto& [text, line] :
       {std::pair{"3 1\nx 2\n", ":2:"}, std::pair{"3\n", ":1:"}, std::pair{"3 1 4\n", ":1:"},
        std::pair{"-1 4\n", ":1:"}, std::pair{"70000 1\n", ":1:"}, std::pair{"1 -4\n", ":1:"},
        std::pair{"1 9007199254740992\n2 1\n", ":2:"}, std::pair{"1 99999999999999999999\n", ":1:"},
        std::pair{"# nothing\n", "no pack"}}) {
    try {
      read_histogram(write(text));
      ADD_FAILURE() << text;
    } catch (const RequestError& error) {
      EXPECT_THAT(error.what(), HasSubstr(line)) << text;
    }
  }
  EXPECT_THROW(read_histogram("/nowhere/at/all"), RequestError);
}

// A pack is a microbatch, and its slots are counted as the engine counts them: the dummy tail is
// one.
TEST(PackHistogram, OfAScenarioCountsItsTrainingPacks) {
  const std::string yaml =
      "schema: 1\nname: x\nnumerics: [fp32]\n"
      "data: {documents: [[[20, 0, 30], [1, 2]], [[64], [16, 15, 17]]], tail: append_dummy_seq}\n"
      "training: {steps: 3}\n";
  const ReadResult read = read_scenario_text(yaml, "x.yaml");
  ASSERT_TRUE(read.ok()) << read.errors.front().text();
  // Steps 0 and 2: 3 + tail, 2 + tail; step 1: 1 (full), 3 + tail.
  EXPECT_THAT(count_packs(read.scenario), ElementsAre(Pair(1, 1), Pair(3, 2), Pair(4, 3)));
}

}  // namespace
}  // namespace lockstep
