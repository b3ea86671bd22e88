// Which versions and settings exchange by copy engines, and what is said where they do not.
#include "engine/device/copy_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

std::string off(int nccl, int cuda, const std::map<std::string, std::string>& variables = {}) {
  return copy_engines_are_off({.nccl = nccl, .cuda = cuda}, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(CopyEngines, NeedAnNcclAndADriverThatHaveThem) {
  for (const int nccl : {22803, 22807, 22809}) EXPECT_EQ(off(nccl, 13000), "") << nccl;
  EXPECT_EQ(off(22809, 12050), "");
  EXPECT_THAT(off(22809, 12040), HasSubstr("12.5"));
  EXPECT_THAT(off(22707, 13000), HasSubstr("2.28.3"));
  EXPECT_THAT(off(0, 13000), HasSubstr("no NCCL"));
  EXPECT_THAT(off(22809, 13010), HasSubstr("2.29.2"));
  EXPECT_EQ(off(22902, 13010), "");
  EXPECT_EQ(off(23102, 13020), "");
}

TEST(CopyEngines, AreNotTakenWithMulticastThatHangs) {
  EXPECT_EQ(off(22809, 13000, {{"NCCL_NVLS_ENABLE", "0"}}), "");
  EXPECT_EQ(off(22809, 13000, {{"NCCL_NVLS_ENABLE", ""}}), "");  // It is set then.
  for (const char* on : {"1", "2"}) {
    EXPECT_THAT(off(22809, 13000, {{"NCCL_NVLS_ENABLE", on}}), HasSubstr("2.31.2"));
    EXPECT_EQ(off(23102, 13000, {{"NCCL_NVLS_ENABLE", on}}), "");
  }
}

TEST(CopyEngines, AreTurnedOffByTheEnvironment) {
  for (const char* name : {"LOCKSTEP_COPY_ENGINES", "NCCL_CUMEM_ENABLE", "NCCL_WIN_ENABLE"}) {
    EXPECT_EQ(off(22809, 13000, {{name, "0"}}), std::string(name) + " is 0");
    EXPECT_EQ(off(22809, 13000, {{name, "1"}}), "");
    EXPECT_EQ(off(22809, 13000, {{name, ""}}), "");
  }
  for (const char* kernels : {"0", "off", "false", "no"}) {
    EXPECT_THAT(off(22809, 13000, {{"LOCKSTEP_COPY_ENGINES", kernels}}),
                EndsWith(std::string(" is ") + kernels));
  }
  EXPECT_THAT(off(22809, 13000, {{"NCCL_CUMEM_ENABLE", "0x0"}}), HasSubstr("NCCL_CUMEM_ENABLE"));
  EXPECT_THAT(off(22809, 13000, {{"LOCKSTEP_EXACT_ALLOCATIONS", "1"}}),
              HasSubstr("LOCKSTEP_EXACT_ALLOCATIONS"));
}

// Who keeps ranks from one another's memory does not get them.
TEST(CopyEngines, AreNotTakenBetweenRanksThatAreKeptApart) {
  for (const char* level : {"LOC", "0"}) {
    EXPECT_EQ(off(22809, 13000, {{"NCCL_P2P_LEVEL", level}}),
              std::string("NCCL_P2P_LEVEL is ") + level);
  }
  for (const char* level : {"", "NVL", "SYS", "1"})
    EXPECT_EQ(off(22809, 13000, {{"NCCL_P2P_LEVEL", level}}), "");
  EXPECT_EQ(off(22809, 13000, {{"NCCL_P2P_DISABLE", "1"}}), "NCCL_P2P_DISABLE is set");
  for (const char* not_off : {"", "0"})
    EXPECT_EQ(off(22809, 13000, {{"NCCL_P2P_DISABLE", not_off}}), "");
}

// Written as 2 where they are taken, which all versions read.
TEST(CopyEngines, NeedThePolicyWithoutBlocks) {
  for (const char* policy : {"", "2", "ZERO"}) {
    for (const int nccl : {22809, 22903})
      EXPECT_EQ(off(nccl, 13000, {{"NCCL_CTA_POLICY", policy}}), "") << policy;
  }
  for (const char* policy : {"0", "1", "EFFICIENCY"}) {
    EXPECT_THAT(off(22903, 13000, {{"NCCL_CTA_POLICY", policy}}), HasSubstr("NCCL_CTA_POLICY"));
  }
}

// NCCL takes an empty one for its own default.
TEST(CopyEngines, SetVariablesThatSayNothing) {
  constexpr const char* kName = "LOCKSTEP_TEST_OF_A_VARIABLE";
  for (const auto& [before, after] : {std::pair("", "0"), std::pair("1", "1")}) {
    ::setenv(kName, before, 1);
    set_where_unset(kName, "0");
    EXPECT_STREQ(std::getenv(kName), after);
  }
  ::unsetenv(kName);
  set_where_unset(kName, "0");
  EXPECT_STREQ(std::getenv(kName), "0");
  ::unsetenv(kName);
}

}  // namespace
}  // namespace lockstep
