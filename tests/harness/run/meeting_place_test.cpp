// Which of what a launcher says decides where its processes meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/run/rendezvous_address.h"

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

LaunchedRank launched(std::optional<bool> one_machine, const std::string& job,
                      const std::string& host) {
  LaunchedRank me;
  me.launcher = "a launcher";
  me.one_machine = one_machine;
  me.job = job;
  me.host = host;
  me.port = host.empty() ? 0 : 29500;
  return me;
}

std::string place(const LaunchedRank& me, const std::string& asked = "") {
  try {
    return text(rendezvous_address(me, asked));
  } catch (const RequestError& error) {
    return std::string("refused: ") + error.what();
  }
}

TEST(RendezvousAddress, IsWhatIsAskedFor) {
  for (const auto& me : {launched(true, "job", "node"), launched(false, "", "")}) {
    EXPECT_EQ(place(me, "/shared/run"), "/shared/run");
    EXPECT_EQ(place(me, "other:7"), "other:7");
    EXPECT_TRUE(rendezvous_address(me, "other:7").address);
    EXPECT_FALSE(rendezvous_address(me, "here:and:there").address);  // A path.
  }
}

TEST(RendezvousAddress, IsMemoryOnOneMachineAndElseTheNetwork) {
  EXPECT_THAT(place(launched(true, "a/job", "node")), EndsWith("-a-job"));
  EXPECT_EQ(place(launched(false, "job", "node")), "node:29500");
  EXPECT_EQ(place(launched({}, "job", "node")), "node:29500");
  EXPECT_THAT(place(launched({}, "job", "")), EndsWith("-job"));
  EXPECT_EQ(place(launched(true, "", "node")), "node:29500");  // There is no name for memory.
}

TEST(RendezvousAddress, IsRefusedWhereNothingTells) {
  EXPECT_THAT(place(launched(false, "job", "")),
              HasSubstr("a launcher started processes on several machines"));
  for (const std::optional<bool> one_machine : {std::optional<bool>(true), std::optional<bool>()}) {
    EXPECT_THAT(place(launched(one_machine, "", "")),
                HasSubstr("refused: a launcher names no job"));
  }
}

}  // namespace
}  // namespace lockstep
