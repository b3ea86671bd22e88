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

// Two chunks, groups of two: at once, one after the other, and two of five behind the first.
TEST(Schedule, RunsPartsOneAfterTheOther) {
  Scenario s;
  s.parallel.chunks = s.parallel.group = 2;
  s.parallel.schedule = PipelineSchedule::interleaved;
  EXPECT_EQ(testing::PrintToString(passes_of_parts(s, 0, 2, 2, 0)),
            "{ F0, F1, F0/1, B0/1, F1/1, B1/1, B0, B1 }");
  EXPECT_EQ(testing::PrintToString(passes_of_parts(s, 0, 2, 1, 0)),
            "{ F0, F0/1, B0/1, B0, F1, F1/1, B1/1, B1 }");
  EXPECT_EQ(testing::PrintToString(passes_of_parts(s, 1, 3, 1, 0)),
            "{ F1, F1/1, B1/1, B1, F2, F2/1, B2/1, B2 }");
  EXPECT_TRUE(passes_of_parts(s, 3, 3, 1, 0).empty());
  s.parallel.pipeline = 2;
  for (const int stage : {0, 1}) {
    EXPECT_EQ(testing::PrintToString(passes_of_parts(s, 0, 2, 1, stage)),
              "{ F0, F0/1, B0/1, B0, F1, F1/1, B1/1, B1 }")
        << "stages cannot wait for each other in a circle";
  }
}

}  // namespace
}  // namespace lockstep
