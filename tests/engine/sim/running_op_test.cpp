#include "engine/sim/running_op.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

std::string described(const RunningOp* op) {
  running_op = op;
  char text[256];
  describe_running_op(text, sizeof text);
  running_op = nullptr;
  return text;
}

TEST(RunningOp, IsDescribedByItsPlace) {
  EXPECT_EQ(described(nullptr), "");
  RunningOp op{.name = "rms_norm_forward",
               .place = {.step = 3, .microbatch = 1, .layer = 2, .rank = 4, .part = "norm"}};
  EXPECT_EQ(described(&op), "(rms_norm_forward, norm, layer 2, rank 4, microbatch 1, step 3)");
  op.captured = true;
  EXPECT_EQ(described(&op),
            "(rms_norm_forward, norm, layer 2, rank 4, captured for microbatch 1, step 3)");
  op = {.name = "adamw", .place = {.step = 0}};
  EXPECT_EQ(described(&op), "(adamw, rank 0, step 0)");
}

// What does not fit is cut, and the text ends.
TEST(RunningOp, IsCutWhereTheTextEnds) {
  const RunningOp op{.name = "rms_norm_forward", .place = {.step = 3}};
  running_op = &op;
  char text[8];
  describe_running_op(text, sizeof text);
  running_op = nullptr;
  EXPECT_EQ(std::string(text), "(rms_no");
}

}  // namespace
}  // namespace lockstep
