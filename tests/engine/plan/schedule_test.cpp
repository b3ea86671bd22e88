#include "engine/plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

TEST(Schedule, RunsThreeInFlightOfFourAsTheSchemaSays) {
  const std::vector<Pass> want{{true, 0}, {true, 1},  {true, 2},  {false, 0},
                               {true, 3}, {false, 1}, {false, 2}, {false, 3}};
  EXPECT_EQ(one_forward_one_backward(4, 3), want);
}

TEST(Schedule, APassIsPrintedAsItIsWritten) {
  EXPECT_EQ(testing::PrintToString(one_forward_one_backward(2, 2)), "{ F0, F1, B0, B1 }");
}

TEST(Schedule, KeepsItsDepthAndItsOrderForEveryCount) {
  for (int count = 1; count <= 12; ++count) {
    for (int depth = 1; depth <= count; ++depth) {
      int forward = 0, backward = 0, deepest = 0;
      for (const Pass& pass : one_forward_one_backward(count, depth)) {
        EXPECT_EQ(pass.microbatch, pass.forward ? forward++ : backward++);
        deepest = std::max(deepest, forward - backward);
        EXPECT_GE(forward, backward);
      }
      EXPECT_EQ(forward, count);
      EXPECT_EQ(backward, count);
      EXPECT_EQ(deepest, depth) << count << " microbatches";
    }
  }
}

}  // namespace
}  // namespace lockstep
