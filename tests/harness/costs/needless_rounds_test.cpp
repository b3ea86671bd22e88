#include "harness/costs/needless_rounds.h"

#include <gtest/gtest.h>

#include "engine/device/violation.h"
#include "engine/rendezvous/store.h"

namespace lockstep::test {
namespace {

CollectiveCall numbered(std::int64_t sequence, CollectiveKind kind) {
  CollectiveCall call;
  call.sequence = sequence;
  call.kind = kind;
  return call;
}

// Four ranks: three bytes of the outbox may stay free where each rank's part is equally large.
TEST(NeedlessRounds, AreThoseBehindARoundWithRoom) {
  const CollectiveCall call = numbered(0, CollectiveKind::all_to_all);
  for (const std::size_t room : {0, 3, 4}) {
    NeedlessRounds rounds(4);
    rounds.posts(call, Store::kOutbox - room);
    if (room < 4)
      EXPECT_NO_THROW(rounds.posts(call, 8));
    else
      EXPECT_THROW(rounds.posts(call, 8), EngineViolation);
  }
}

TEST(NeedlessRounds, AreOfOneCollectiveAndMoveItsData) {
  NeedlessRounds rounds(2);
  rounds.posts(numbered(0, CollectiveKind::all_gather), 0);
  rounds.posts(numbered(1, CollectiveKind::all_gather), 0);
  // Words are as long as each rank likes, and the longest have more rounds.
  rounds.posts(numbered(2, CollectiveKind::barrier), 8);
  rounds.posts(numbered(2, CollectiveKind::barrier), 8);
  rounds.posts(numbered(3, CollectiveKind::all_gather), 0);
  EXPECT_THROW(rounds.posts(numbered(3, CollectiveKind::all_gather), 0), EngineViolation);
}

}  // namespace
}  // namespace lockstep::test
