#include "engine/device/copy_clock.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int kNames[5] = {};
constexpr CopyClock::Id kCompute = &kNames[0], kOut = &kNames[1], kBack = &kNames[2];  // Streams,
constexpr CopyClock::Id kLeft = &kNames[3], kReturned = &kNames[4];  // and events.

void leave(CopyClock& clock) {
  clock.copied(kOut);
  clock.recorded(kOut, kLeft);
}

TEST(CopyClock, JoinsWhatAnEventIsBehindAndNoMore) {
  CopyClock clock;
  leave(clock);
  clock.waited(kCompute, kLeft);
  EXPECT_TRUE(clock.joined(kOut, kCompute));
  clock.copied(kOut);  // Behind the event.
  EXPECT_FALSE(clock.joined(kOut, kCompute));
  clock.recorded(kOut, kLeft);
  EXPECT_FALSE(clock.joined(kOut, kCompute));
  clock.waited(kCompute, kLeft);
  EXPECT_TRUE(clock.joined(kOut, kCompute));
}

TEST(CopyClock, JoinsThroughOtherStreams) {
  CopyClock clock;
  leave(clock);
  clock.waited(kBack, kLeft);
  clock.copied(kBack);
  clock.recorded(kBack, kReturned);
  EXPECT_FALSE(clock.joined(kOut, kCompute));
  clock.waited(kCompute, kReturned);
  EXPECT_TRUE(clock.joined(kOut, kCompute));
  EXPECT_TRUE(clock.joined(kBack, kCompute));
  EXPECT_TRUE(clock.joined(kBack, kBack));
}

TEST(CopyClock, TakesAnEventAsItWasWhenWaitedFor) {
  CopyClock clock;
  leave(clock);
  clock.recorded(kCompute, kLeft);  // Recorded again elsewhere, in front of nothing.
  clock.waited(kCompute, kLeft);
  EXPECT_FALSE(clock.joined(kOut, kCompute));
}

TEST(CopyClock, ForgetsTheCaptureBefore) {
  CopyClock clock;
  leave(clock);
  clock.clear();
  clock.waited(kCompute, kLeft);
  clock.copied(kOut);
  EXPECT_FALSE(clock.joined(kOut, kCompute));
}

}  // namespace
}  // namespace lockstep
