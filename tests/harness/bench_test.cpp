// What bench divides by: the operations and bytes of an op and of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/bench/door.h"
#include "harness/bench/model.h"
#include "harness/bench/work.h"
#include "scenarios/reader.h"

namespace lockstep {
namespace {

TEST(Bench, TheStandardModelsAreLegalAndBuilt) {
  for (const char* name : {"H1", "S1"}) {
    const auto scenario = standard_model(name);
    ASSERT_TRUE(scenario);
    EXPECT_EQ(scenario->name, name);
    for (const auto& error : check_legality(*scenario)) ADD_FAILURE() << error.text();
    for (const auto& error : check_built(*scenario)) ADD_FAILURE() << error.text();
  }
  EXPECT_FALSE(standard_model("h1"));
}

// Counted by hand: 340,262,912 weights in products; 6 x 32,768 tokens each make 66.9 TFLOP, the scan adds 1.44.
TEST(Bench, AStepOfH1NeedsWhatIsPublishedForIt) {
  const Scenario h1 = *standard_model("H1");
  const std::vector<MicrobatchLengths> empty(4);
  EXPECT_DOUBLE_EQ(model_flop(h1, empty), 6.0 * 32768 * 340'262'912 + 3.0 * 7 * 4096 * 128 * 32768 * 4);
  const std::vector<MicrobatchLengths> one{{3}, {}, {}, {}};
  EXPECT_DOUBLE_EQ(model_flop(h1, one) - model_flop(h1, empty), 3.0 * 4 * 16 * 128 * 2 * 6);
}

TEST(Bench, CausalPairsAreThoseInsideDocuments) {
  EXPECT_EQ(causal_pairs({}), 0);
  EXPECT_EQ(causal_pairs({4, 0, 1}), 11);
}

TEST(Bench, AProductIsTwoOperationsAPair) {
  std::vector<bf16> x(6 * 8), w(10 * 8), y(6 * 10);
  std::vector<float> dw(10 * 8);
  const Submission forward(
      LinearForward<bf16>{.x = tensor(x.data(), 6, 8), .w = tensor(w.data(), 10, 8), .y = tensor(y.data(), 6, 10)});
  const OpWork work = work_of(forward, 0);
  EXPECT_EQ(work.bound, Bound::product);
  EXPECT_EQ(work.flop, 2 * 6 * 8 * 10);
  EXPECT_EQ(work.bytes, 2 * (48 + 80 + 60));
  EXPECT_EQ(signature(forward), "linear_forward 6x16B 10x16B 6x20B");
}

TEST(Bench, WhatIsAccumulatedIsReadAndWritten) {
  std::vector<float> g(6), acc(6);
  const OpWork work =
      work_of(Submission(AccumulateGradient{.g = tensor(g.data(), 2, 3), .acc = tensor(acc.data(), 2, 3)}), 0);
  EXPECT_EQ(work.bound, Bound::bandwidth);
  EXPECT_EQ(work.bytes, 3 * 24);
  EXPECT_EQ(work.flop, 0);
}

// What a GPU that several workers share makes expensive: a judge waits once for all that it looks at after a pass.
TEST(Bench, ARandomCaseWaitsForItsDeviceSomeDozenTimes) {
  const std::vector<DoorCount> table = count_door(1, 30);
  const auto count_of = [&](const std::string& call) {
    const auto found = std::find_if(table.begin(), table.end(), [&](const DoorCount& one) { return one.call == call; });
    return found == table.end() ? DoorCount{} : *found;
  };
  EXPECT_GT(count_of("host waits").median, 0);
  EXPECT_LT(count_of("host waits").median, 150);
  for (const char* call : {"allocations", "pinned allocations", "ops", "copies", "waits", "captures", "delays"}) {
    EXPECT_GT(count_of(call).most, 0) << call;
  }
}

}  // namespace
}  // namespace lockstep
