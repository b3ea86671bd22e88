// Which of what a launcher says decides where its processes meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string_view>

#include "harness/base/errors.h"
#include "harness/run/launch.h"
#include "harness/run/meeting_key.h"
#include "harness/run/rendezvous_address.h"
#include "tests/support/program.h"

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

// ---- The key ------------------------------------------------------------------------------------

const std::string kKey = std::string(40, 'k');

std::string key_of(const char* given, const char* file) {
  try {
    return meeting_key([&](const char* name) {
      return std::string_view(name) == "LOCKSTEP_MEETING_KEY" ? given : file;
    });
  } catch (const RequestError& error) {
    return std::string("refused: ") + error.what();
  }
}

TEST(MeetingKey, IsThatOfTheVariableOrOfAFileThatNobodyElseReads) {
  const TemporaryFolder folder;
  const std::string path = folder.file("key", kKey + "\n");
  EXPECT_EQ(key_of(nullptr, nullptr), "");
  EXPECT_EQ(key_of((kKey + " \n").c_str(), nullptr), kKey);
  EXPECT_THAT(key_of(nullptr, path.c_str()), EndsWith(path + " may be read by others: chmod 600"));
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(key_of(nullptr, path.c_str()), kKey);
  EXPECT_THAT(key_of(kKey.c_str(), path.c_str()), HasSubstr("one of them is enough"));
}

TEST(MeetingKey, IsLongAndOfAFile) {
  const TemporaryFolder folder;
  const std::string fifo = folder / "fifo", missing = folder / "missing";
  ::mkfifo(fifo.c_str(), 0600);
  EXPECT_THAT(key_of(nullptr, fifo.c_str()), EndsWith(fifo + " is no regular file"));
  EXPECT_THAT(key_of(nullptr, missing.c_str()), EndsWith("No such file or directory"));
  EXPECT_THAT(key_of("", nullptr), HasSubstr("a key of 0 characters, and 32 are the least"));
  const std::string secret = "too short a secret";
  const std::string told = key_of(secret.c_str(), nullptr);
  EXPECT_THAT(told, HasSubstr("a key of 18 characters"));
  EXPECT_THAT(told, testing::Not(HasSubstr(secret)));
}

// With the user's own, equal runs would have other bits.
TEST(SumsOfNccl, AreOrderedAsTheyAreWhateverTheEnvironmentSays) {
  ::setenv("NCCL_ALGO", "Tree\x1b", 1);
  ::setenv("NCCL_PROTO", "Simple", 1);
  testing::internal::CaptureStderr();
  pin_sums(true);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_STREQ(std::getenv("NCCL_ALGO"), "Ring");
  EXPECT_STREQ(std::getenv("NCCL_PROTO"), "Simple");
  EXPECT_EQ(told,
            "lockstep: NCCL_ALGO=Tree\\x1b is replaced by Ring, which fixes the order of sums\n");
}

}  // namespace
}  // namespace lockstep
