// The memory that tensors share, as `describe` prints it.
#include "harness/report/shared_memory_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/memory/memory_plan.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

Scenario shared() {
  Scenario s;
  s.model.pattern = "*-M*-";
  s.numerics = {Numerics::fp32, Numerics::bf16};
  s.training.microbatches = s.training.in_flight = 3;
  s.cuda_graph.shared_memory = true;
  return s;
}

TEST(SharedMemoryTable, IsEmptyWithoutSharing) {
  Scenario s = shared();
  s.cuda_graph.shared_memory = false;
  EXPECT_EQ(shared_memory_table(s), "");
}

TEST(SharedMemoryTable, NamesBothSizesThePeakAndWhatIsAliveThen) {
  const std::string text = shared_memory_table(shared());
  EXPECT_THAT(text, HasSubstr("shared memory in fp32, "));
  EXPECT_THAT(text, HasSubstr("shared memory in bf16, "));
  EXPECT_THAT(text, HasSubstr("  without sharing "));
  EXPECT_THAT(text, HasSubstr("  largest sum of live bytes "));
  EXPECT_THAT(text, HasSubstr("alive at a training step of 3 microbatches, backward pass of "));
  EXPECT_THAT(text, HasSubstr("layers.*.qkv (6)\n")) << "of two layers and three slots";
}

TEST(SharedMemoryTable, HasEachStageAndWhatItsChunksWouldTakeApart) {
  Scenario s = shared();
  s.model.pattern = "MMMM";
  s.parallel.pipeline = s.parallel.chunks = s.parallel.group = 2;
  s.parallel.schedule = PipelineSchedule::interleaved;
  s.training.microbatches = 4;
  s.training.in_flight = scheduled_depth(s);
  const std::string text = shared_memory_table(s);
  for (const char* whose : {"of stage 0 in fp32", "of stage 1 in fp32", "of stage 1 in bf16"})
    EXPECT_THAT(text, HasSubstr(std::string("shared memory ") + whose));
  EXPECT_THAT(text, HasSubstr("  live bytes of chunks apart "));
  EXPECT_THAT(text, HasSubstr(" through chunk "));
  const boost::json::array stages = shared_memory_json(s).at("bf16").as_array();
  ASSERT_EQ(stages.size(), 2u);
  s.numerics = {Numerics::bf16};
  for (int stage = 0; stage < 2; ++stage)
    EXPECT_EQ(stages.at(stage).at("bytes").as_int64(), plan_memory(s, stage).bytes);
}

TEST(SharedMemoryTable, AddsUpWhatIsAlive) {
  Scenario s = shared();
  const boost::json::object all = shared_memory_json(s);
  for (const Numerics numerics : s.numerics) {
    Scenario narrowed = s;
    narrowed.numerics = {numerics};
    const MemoryPlan plan = plan_memory(narrowed);
    const auto& one = all.at(numerics == Numerics::fp32 ? "fp32" : "bf16").as_object();
    EXPECT_EQ(one.at("bytes").as_int64(), plan.bytes);
    EXPECT_EQ(one.at("saved_bytes").as_int64(), plan.unshared - plan.bytes);
    std::int64_t alive = 0;
    for (const auto& kind : one.at("alive").as_array())
      alive += kind.as_object().at("bytes").as_int64();
    EXPECT_EQ(alive, one.at("largest_live_bytes").as_int64());
  }
}

}  // namespace
}  // namespace lockstep
