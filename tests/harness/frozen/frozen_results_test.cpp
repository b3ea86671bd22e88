// Frozen output of commit edf92d4: the results of replay tokens and the digests of training runs.
// Users keep tokens in issue trackers and scripts, so a change of the code may not change what a
// token means.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string frozen(const std::string& file) {
  return root_path() + "/tests/harness/frozen/" + file;
}

// Allocations are counted in the order in which the engine makes them, which is not part of a
// verdict.
std::string without_allocation_numbers(const json::value& reason) {
  static const std::regex number("(device|pinned) allocation \\d+");
  return std::regex_replace(json::value_to<std::string>(reason), number, "$1 allocation");
}

json::object replayed(const json::object& want, const TemporaryFolder& folder) {
  const std::string report = folder / "report.json";
  std::string words = "replay " + json::value_to<std::string>(want.at("token")) +
                      " --quiet --device sim --json " + report;
  const std::string plant = json::value_to<std::string>(want.at("plant"));
  if (!plant.empty()) words += " --plant " + plant;
  const Ran ran = run_lockstep(words);
  EXPECT_EQ(ran.status, want.at("verdict") == "holds" ? 0 : 1) << ran.err;
  const json::value parsed = json::parse(slurp(report));
  return parsed.at("results").as_array().at(0).as_object();
}

// The scenario of a result's token. The token itself has every key, those too that are newer than
// the frozen one.
std::string meaning(const json::object& result) {
  return canonical_form(read_token(json::value_to<std::string>(result.at("token"))));
}

// A counter may be added; those that were reported then keep their value, but for three that count
// ops, their operands and bytes: an engine that does the same with fewer ops has the same bits.
void expect_counters(const json::object& want, const json::object& got) {
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << name;
    if (name == "bytes_poisoned" || name == "hazards_checked" || name == "ops") continue;
    EXPECT_EQ(got.at(name), value) << name;
  }
}

// A key may be added to a difference too.
void expect_difference(const json::value& want, const json::value& got) {
  ASSERT_EQ(got.is_object(), want.is_object());
  if (want.is_object()) expect_counters(want.as_object(), got.as_object());
}

TEST(FrozenResults, TokensGiveTheSameVerdictJudgeAndFirstDifference) {
  const TemporaryFolder folder;
  const json::value list = json::parse(slurp(frozen("tokens.json")));
  ASSERT_GE(list.as_array().size(), 49u);
  for (const json::value& item : list.as_array()) {
    const json::object& want = item.as_object();
    SCOPED_TRACE(json::serialize(want.at("name")) + " " + json::serialize(want.at("numerics")) +
                 " planted " + json::serialize(want.at("plant")));
    const json::object got = replayed(want, folder);
    for (const char* key : {"name", "numerics", "verdict", "judge"})
      EXPECT_EQ(got.at(key), want.at(key)) << key;
    EXPECT_EQ(meaning(got), meaning(want));
    // Fewer gradients are zeroed now, so that the first one that this fault spoils is another.
    if (want.at("plant") == "gradients-not-zeroed-at-step-start") continue;
    EXPECT_EQ(without_allocation_numbers(got.at("reason")),
              without_allocation_numbers(want.at("reason")));
    expect_difference(want.at("first_difference"), got.at("first_difference"));
    if (want.contains("counters")) {
      expect_counters(want.at("counters").as_object(), got.at("counters").as_object());
    }
  }
}

// The lines of `train --digest-every 100`, which begin with the step.
std::vector<std::string> digests(const std::string& file) {
  const Ran ran = run_lockstep("train --quiet --device sim --digest-every 100 " + frozen(file));
  EXPECT_EQ(ran.status, 0) << ran.err;
  std::vector<std::string> list;
  static const std::regex line("weights ([0-9a-f]{32})");
  for (std::sregex_iterator it(ran.out.begin(), ran.out.end(), line), end; it != end; ++it)
    list.push_back((*it)[1]);
  return list;
}

TEST(FrozenResults, ThreeHundredStepsGiveTheSameWeights) {
  EXPECT_EQ(digests("fp32.yaml"), (std::vector<std::string>{"ac6a58c28f5e277fa3f06001b108034b",
                                                            "bc8e8d4f2f282bea4edfe7a6e4e1d000",
                                                            "d8602e34a3787ff421b5b9483e58d274"}));
  EXPECT_EQ(digests("bf16.yaml"), (std::vector<std::string>{"e325b4d21f6008ac804be3872934176d",
                                                            "b2e6d727ebbd7986e533f686fafeaefc",
                                                            "e2c46116d83d95a2771867d31c891c6c"}));
}

TEST(FrozenResults, ThreeHundredShardedStepsGiveTheSameWeights) {
  EXPECT_EQ(digests("sharded.yaml"),
            (std::vector<std::string>{"976effc276bfec9ee56e543c9eecb8c8",
                                      "446987b090728e70ed8aee04c6ea645d",
                                      "8c5d8e8198966723c318e27ad3ffc3ae"}));
}

}  // namespace
}  // namespace lockstep
