// A planted fault must be caught at its first tensor, and its replay must find the identical
// difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kSmall = "schema: 1\nname: canary\nnumerics: [fp32]\n";

class Canary : public testing::Test {
 protected:
  // The one result of `lockstep WORDS --json`.
  boost::json::value result(const std::string& words, int status) {
    const Ran ran = run_lockstep(words + " --json " + (folder_ / "r.json"));
    EXPECT_EQ(ran.status, status) << ran.out << ran.err;
    return boost::json::parse(slurp(folder_ / "r.json")).at("results").at(0);
  }
  void is_caught(const std::string& planted, const std::string& judge, const std::string& tensor) {
    const boost::json::value found =
        result("verify --device sim " + planted + " " + folder_.file("case.yaml", kSmall), 1);
    EXPECT_EQ(found.at("judge").as_string(), judge);
    EXPECT_EQ(found.at("first_difference").at("tensor").as_string(), tensor);
    const std::string replay(found.at("replay").as_string());
    ASSERT_THAT(replay, StartsWith("lockstep replay "));
    EXPECT_THAT(replay, HasSubstr(planted));
    const boost::json::value again = result(replay.substr(std::string("lockstep ").size()), 1);
    for (const char* key : {"token", "verdict", "judge", "reason", "first_difference", "replay"}) {
      EXPECT_EQ(again.at(key), found.at(key)) << key;
    }
  }
  TemporaryFolder folder_;
};

TEST_F(Canary, AKernelFaultIsNamedAtItsFirstTensor) {
  is_caught("--plant rms-norm-forgets-eps", "activation", "layers.0.norm.out");
}
TEST_F(Canary, AGradientFaultIsNamedAtItsFirstGradient) {
  is_caught("--plant linear-weight-gradient-drops-first-row", "gradient", "head.weight.gradient");
}
TEST_F(Canary, WithoutAFaultTheSameScenarioHolds) {
  EXPECT_EQ(result("verify --device sim " + folder_.file("case.yaml", kSmall), 0)
                .at("verdict")
                .as_string(),
            "holds");
}

}  // namespace
}  // namespace lockstep
