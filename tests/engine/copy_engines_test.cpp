// Which versions and settings exchange by copy engines, and what is said where they do not.
#include "engine/copy_engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

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
  EXPECT_THAT(off(22809, 13000, {{"LOCKSTEP_EXACT_ALLOCATIONS", "1"}}), HasSubstr("LOCKSTEP_EXACT_ALLOCATIONS"));
  EXPECT_THAT(off(22809, 13000, {{"NCCL_CTA_POLICY", "1"}}), HasSubstr("NCCL_CTA_POLICY"));
  EXPECT_EQ(off(22809, 13000, {{"NCCL_CTA_POLICY", "2"}}), "");
  EXPECT_EQ(off(22903, 13000, {{"NCCL_CTA_POLICY", "ZERO"}}), "");
}

}  // namespace
}  // namespace lockstep
