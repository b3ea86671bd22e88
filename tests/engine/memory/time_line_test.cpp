// The time line of a stage's chunks, by hand and against that of each chunk.
#include "engine/memory/time_line.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::vector<Chunk> chunks_of(const std::vector<int>& segments) {
  std::vector<Chunk> chunks;
  for (const int count : segments) {
    Chunk next{.number = static_cast<int>(chunks.size())};
    next.first_segment = chunks.empty() ? 5 : chunks.back().end_segment + 7;  // Others lie between.
    next.end_segment = next.first_segment + count;
    chunks.push_back(next);
  }
  return chunks;
}

TEST(TimeLine, OfOneChunkIsThatOfTheOffloadPlan) {
  const TimeLine line(chunks_of({4}));
  EXPECT_EQ(line.arrival(0), -1);
  EXPECT_EQ(line.departure(0), 4);
  EXPECT_EQ(line.last_forward(), 4);
  for (int step = -1; step <= 10; ++step) EXPECT_EQ(line.step(0, step), step);
}

// F0 -1 to 2, F1 3 to 5, B1 6 to 8, B0 9 to 12.
TEST(TimeLine, OfTwoChunksGoesThroughThemAndBack) {
  const TimeLine line(chunks_of({2, 1}));
  EXPECT_EQ(line.arrival(0), -1);
  EXPECT_EQ(line.departure(0), 2);
  EXPECT_EQ(line.arrival(1), 3);
  EXPECT_EQ(line.departure(1), 5);
  EXPECT_EQ(line.segments(0), 2);
  EXPECT_EQ(line.segments(1), 1);
  EXPECT_TRUE(line.is_forward(5));
  EXPECT_FALSE(line.is_forward(6));
  EXPECT_EQ(line.step(0, 1), 1) << "forward through its last segment";
  EXPECT_EQ(line.step(1, 0), 4) << "forward through its only segment";
  EXPECT_EQ(line.step(1, 2), 6) << "the head's backward pass";
  EXPECT_EQ(line.step(1, 4), 8);
  EXPECT_EQ(line.step(0, 3), 9) << "its output's gradient has come";
  EXPECT_EQ(line.step(0, 6), 12) << "the embedding's backward pass";
  EXPECT_EQ(line.backward(-1), 12);
}

TEST(TimeLine, FindsTheChunkOfEveryStep) {
  const std::vector<int> segments{3, 1, 2};
  const TimeLine line(chunks_of(segments));
  int seen = 0;
  for (int chunk = 0; chunk < 3; ++chunk) {
    for (int own = -1; own <= 2 * segments[chunk] + 2; ++own) {
      const TimeLine::Place place = line.place(line.step(chunk, own));
      EXPECT_EQ(place.chunk, chunk) << own;
      EXPECT_EQ(place.own, own) << chunk;
      EXPECT_EQ(line.is_forward(line.step(chunk, own)), own <= segments[chunk]);
      ++seen;
    }
  }
  EXPECT_EQ(seen, line.backward(-1) + 2) << "every step is of one chunk";
}

}  // namespace
}  // namespace lockstep
