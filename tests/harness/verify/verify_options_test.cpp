// `verify` as its users call it: which cases it runs, on how many workers, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <map>
#include <set>

#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

class VerifyOptions : public testing::Test {
 protected:
  VerifyOptions() {
    std::filesystem::create_directory(cases_);
    for (const char* name : {"apple", "pear", "pine-apple"}) write(name, "");
  }
  void write(const std::string& name, const std::string& more) const {
    std::ofstream(cases_ + "/" + name + ".yaml")
        << "schema: 1\nname: " << name << "\nnumerics: [fp32, bf16]\n"
        << more;
  }
  Ran verify(const std::string& options) const {
    return run_lockstep("verify --device sim --json " + json_ + " " + options + " " + cases_);
  }
  // "name numerics", in the order of the report.
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    const boost::json::value run = boost::json::parse(slurp(json_));
    for (const boost::json::value& one : run.at("results").as_array()) {
      list.push_back(boost::json::value_to<std::string>(one.at("name")) + " " +
                     boost::json::value_to<std::string>(one.at("numerics")));
    }
    return list;
  }
  // Without what a clock gave.
  boost::json::array results() const {
    boost::json::value run = boost::json::parse(slurp(json_));
    for (boost::json::value& one : run.at("results").as_array()) one.as_object().erase("seconds");
    return run.at("results").as_array();
  }

  const TemporaryFolder folder_;
  const std::string cases_ = folder_ / "cases", json_ = folder_ / "r.json";
};

TEST_F(VerifyOptions, APatternSelectsByNamePrecisionAndFile) {
  EXPECT_EQ(verify("-k pear").status, 0);
  EXPECT_EQ(names(), (std::vector<std::string>{"pear fp32", "pear bf16"}));
  EXPECT_EQ(verify("--match 'p*e-apple bf'").status, 0);
  EXPECT_EQ(names(), (std::vector<std::string>{"pine-apple bf16"}));
  EXPECT_EQ(verify("-k cases/apple").status, 0);
  EXPECT_EQ(names(), (std::vector<std::string>{"apple fp32", "apple bf16"}));
  const Ran none = verify("-k banana");
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("-k banana: no case has this in its name, precision or file"));
}

TEST_F(VerifyOptions, SharesAreDisjointAndWhole) {
  std::multiset<std::string> all;
  for (const char* share : {"0/4", "1/4", "2/4", "3/4"}) {
    EXPECT_EQ(verify(std::string("--shard ") + share).status, 0);
    for (const std::string& name : names()) all.insert(name);
  }
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 6u);
  EXPECT_EQ(verify("--shard 6/7").status, 2);
  EXPECT_EQ(verify("--shard 1").status, 2);
}

TEST_F(VerifyOptions, OrderAndResultsAreThoseOfOneProcess) {
  EXPECT_EQ(verify("--no-fork").status, 0);
  const boost::json::array here = results();
  for (const char* jobs : {"1", "4"}) {
    EXPECT_EQ(verify(std::string("--jobs ") + jobs).status, 0);
    EXPECT_EQ(results(), here) << jobs;
  }
}

TEST_F(VerifyOptions, WhatFailedLastRunsAgain) {
  write("pear", "expect: {counters: {graph_replays: 1}}\n");
  EXPECT_EQ(verify("").status, 1);
  const std::string earlier = folder_ / "earlier.json";
  std::filesystem::copy_file(json_, earlier);
  EXPECT_EQ(verify("--last-failed " + earlier).status, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"pear fp32", "pear bf16"}));
  write("pear", "");
  write("quince", "");  // The earlier run does not have it.
  EXPECT_EQ(verify("--last-failed " + earlier).status, 0);
  EXPECT_EQ(names(),
            (std::vector<std::string>{"pear fp32", "pear bf16", "quince fp32", "quince bf16"}));
}

TEST_F(VerifyOptions, NothingIsLeftWhereNothingFailed) {
  EXPECT_EQ(verify("").status, 0);
  const std::string earlier = folder_ / "earlier.json";
  std::filesystem::copy_file(json_, earlier);
  const Ran ran = verify("--last-failed " + earlier);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("nothing failed in " + earlier));
  EXPECT_TRUE(names().empty());
}

TEST_F(VerifyOptions, AnEarlierReportMustBeOne) {
  EXPECT_EQ(verify("--last-failed /no/such.json").status, 2);
  EXPECT_EQ(verify("--last-failed " + cases_ + "/apple.yaml").status, 2);
  EXPECT_EQ(verify("--last-failed " + json_).status, 2) << "it would be replaced";
}

TEST_F(VerifyOptions, AFirstFailureCanBeTheLast) {
  write("apple", "expect: {counters: {graph_replays: 1}}\n");
  const Ran ran = verify("--fail-fast --jobs 1");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"apple fp32"}));
  EXPECT_THAT(ran.out, HasSubstr("stopped after a failure: 5 of 6 cases were not run"));
  EXPECT_TRUE(boost::json::parse(slurp(json_)).at("stopped_after_failure").as_bool());
}

TEST_F(VerifyOptions, ACrashIsOfItsCaseAlone) {
  const Ran ran = verify("--plant harness-test-crash --jobs 2");
  EXPECT_EQ(ran.status, 3);
  EXPECT_EQ(names().size(), 6u);
  EXPECT_EQ(ran.err.find("[7/"), std::string::npos);
  EXPECT_THAT(ran.err, HasSubstr("[6/6]"));
}

}  // namespace
}  // namespace lockstep
