// An engine that crashes, hangs, writes garbage or lies: each gets its verdict and exit status
// within the deadline, no case is lost, and no process stays.
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/program.h"
#include "tests/support/started.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string bad_engine() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "misbehaving_engine")
      .string();
}

std::string scenario_text(const std::string& name, int seed) {
  return "schema: 1\nname: " + name +
         "\nmodel: {pattern: \"*-\", hidden: 16, vocab: 16, attention: {heads: 1}, mlp: {hidden: "
         "16}}\ndata: {pack_length: 16, documents: [[[5, 9], [7, 2, 3]], [[4, 12], [8, 8]]]}\n"
         "training: {steps: 2, microbatches: 2, seed: " +
         std::to_string(seed) + "}\n";
}

struct Judged {
  int status = -1;
  std::string out, err;
  json::object report;
  double seconds = 0;

  std::string verdict(std::size_t i) const {
    const json::object& one = report.at("results").as_array().at(i).as_object();
    return std::string(one.at("verdict").as_string()) + " by " +
           std::string(one.at("judge").as_string());
  }
  std::string reason(std::size_t i) const {
    return std::string(report.at("results").as_array().at(i).as_object().at("reason").as_string());
  }
};

class Misbehaving : public testing::Test {
 protected:
  Misbehaving() {
    std::filesystem::create_directory(folder_ / "tmp");
    ::setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
    folder_.file("cases/a.yaml", scenario_text("a", 1));
    folder_.file("cases/b.yaml", scenario_text("b", 2));
  }
  ~Misbehaving() override {
    ::unsetenv("TMPDIR");
    EXPECT_TRUE(comes_true([&] { return engines() == 0; })) << "a process of the engine stays";
  }

  int engines() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const std::string environment = slurp(entry.path() / "environ");
      if (!lives(static_cast<pid_t>(std::stol(name)))) continue;
      if (static_cast<pid_t>(std::stol(name)) == ::getpid()) continue;
      if (environment.find("TMPDIR=" + (folder_ / "tmp")) != std::string::npos) ++count;
    }
    return count;
  }

  // Two cases on an engine that misbehaves so.
  Judged judge(const std::string& how, const std::string& more = "", int timeout_s = 20) {
    const auto start = std::chrono::steady_clock::now();
    const std::string report = folder_ / "report.json";
    std::filesystem::remove(report);
    const Ran ran = run_lockstep("verify --quiet --timeout " + std::to_string(timeout_s) +
                                 " --json " + report + " " + more + " --engine '" + bad_engine() +
                                 " " + how + " " + lockstep_program() + "' " + (folder_ / "cases"));
    Judged judged{.status = ran.status, .out = ran.out, .err = ran.err, .report = {}};
    if (std::filesystem::exists(report)) judged.report = json::parse(slurp(report)).as_object();
    judged.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return judged;
  }

  // Both cases get this verdict.
  void both(const std::string& how, const std::string& verdict, int status,
            const std::string& reason, const std::string& more = "") {
    SCOPED_TRACE(how);
    const Judged judged = judge(how, more);
    EXPECT_EQ(judged.status, status) << judged.out << judged.err;
    for (const std::size_t i : {0, 1}) {
      EXPECT_EQ(judged.verdict(i), verdict) << judged.reason(i);
      EXPECT_NE(judged.reason(i).find(reason), std::string::npos) << judged.reason(i);
    }
  }

  const TemporaryFolder folder_;
};

constexpr const char* kFirst = "--relation R1";

TEST_F(Misbehaving, AnEngineThatPassesLinesOnHolds) { both("well", "holds by none", 0, ""); }

TEST_F(Misbehaving, WhatItPrintsIsNoReply) { both("prints", "holds by none", 0, "", kFirst); }

TEST_F(Misbehaving, Crashes) {
  both("crash", "broken by crash", 3, "was killed by SIGABRT", kFirst);
  both("exit", "broken by crash", 3, "exited with status 7", kFirst);
}

// Only fresh processes show it, in each run of the search.
TEST_F(Misbehaving, DiffersByProcessAndShrinks) {
  const std::string small = folder_ / "small.yaml";
  const Ran ran = run_lockstep("shrink " + (folder_ / "cases/a.yaml") +
                               " --quiet --relation R1 -o " + small + " --engine '" + bad_engine() +
                               " differs-by-process " + lockstep_program() + "'");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("in fresh processes"), std::string::npos) << ran.out;
  const std::string text = slurp(small);
  EXPECT_NE(text.find("documents: [[[2]]]"), std::string::npos) << text;
}

TEST_F(Misbehaving, Hangs) {
  const Judged judged = judge("hang", kFirst, 1);
  EXPECT_EQ(judged.status, 4) << judged.err;
  EXPECT_EQ(judged.verdict(0), "broken by watchdog");
  EXPECT_EQ(judged.verdict(1), "broken by watchdog");
  EXPECT_LT(judged.seconds, 60);
}

TEST_F(Misbehaving, WritesWhatIsNoReply) {
  both("garbage", "broken by protocol", 3, "warming up...", kFirst);
  both("no-utf8", "broken by protocol", 3, "no JSON object", kFirst);
  both("another-id", "broken by protocol", 3, "no reply to request", kFirst);
  both("long-line", "broken by protocol", 3, "a line of more than 1 MiB", kFirst);
}

TEST_F(Misbehaving, LeavesOutWhatWasAskedFor) {
  both("drops-a-gradient", "broken by protocol", 3, "was asked for and is missing", kFirst);
  both("forgets-a-counter", "broken by protocol", 3, "no counter tokens", "--relation R15");
  both("no-counters", "broken by protocol", 3, "`counters` is missing", kFirst);
}

TEST_F(Misbehaving, AnswersOtherwiseTheSecondTime) {
  both("drops-an-activation-now-and-then", "violated by relation", 1, "R1 repeat: ", kFirst);
  both("another-shape", "violated by relation", 1, "R1 repeat: 1 tensor differs", kFirst);
  both("counts-otherwise", "violated by counters", 1, "ops_recomputed is ", kFirst);
}

TEST_F(Misbehaving, LiesAboutCounters) {
  both("lies-about-replays", "violated by vacuous", 1, "graph_replays is 0", "--relation R2");
  both("lies-about-replays", "violated by vacuous", 1, "graph_replays is 0", "--relation R15");
  both("lies-about-microbatches", "violated by counters", 1, "microbatches is 1000, expected 4",
       "--relation R15");
}

TEST_F(Misbehaving, RunsThatAreWrongByThemselves) {
  both("nan", "violated by nan", 1, "holds a NaN", kFirst);
  both("other-rows", "violated by rows", 1, "has another length", kFirst);
  both("fails", "violated by failed", 1, "capture: no stream", kFirst);
  both("no-memory", "gave_up by memory", 5, "memory", kFirst);
}

TEST_F(Misbehaving, AnEngineThatSkipsAllVerifiesNothing) {
  const Judged judged = judge("skips", kFirst);
  EXPECT_EQ(judged.status, 3);
  EXPECT_NE(judged.err.find("every scenario was skipped"), std::string::npos) << judged.err;
}

TEST_F(Misbehaving, DiesBetweenCases) {
  both("dies-between-cases", "holds by none", 0, "", kFirst);
}

TEST_F(Misbehaving, DiesWheneverNothingIsAsked) {
  const Judged judged = judge("dies-after-every-check", kFirst);
  EXPECT_EQ(judged.status, 3);
  EXPECT_NE(judged.err.find("three times in a row"), std::string::npos) << judged.err;
}

TEST_F(Misbehaving, TalksWhenNothingIsAsked) {
  // Its words are there before the next request is written, or come after it.
  for (const char* how : {"talks-between-cases", "talks-late"}) {
    SCOPED_TRACE(how);
    const Judged judged = judge(how, kFirst);
    EXPECT_EQ(judged.status, 3);
    EXPECT_EQ(judged.verdict(0), "holds by none");
    EXPECT_EQ(judged.verdict(1), "broken by protocol");
    EXPECT_NE(judged.reason(1).find("when nothing was asked"), std::string::npos)
        << judged.reason(1);
    // The second case was judged all the same.
    EXPECT_GT(judged.report.at("results").as_array()[1].at("relations").as_array().size(), 1u);
  }
}

TEST_F(Misbehaving, NeverGetsAsFarAsACase) {
  for (const auto& [how, status, what] :
       {std::tuple("dies-at-once", 3, "exited with status 1"),
        std::tuple("speaks-2", 2, "the engine speaks protocol 2, lockstep speaks 1"),
        std::tuple("says-little", 3, "`honours` is missing")}) {
    SCOPED_TRACE(how);
    const Judged judged = judge(how);
    EXPECT_EQ(judged.status, status) << judged.err;
    EXPECT_NE(judged.err.find(what), std::string::npos) << judged.err;
  }
}

TEST_F(Misbehaving, ADifferenceOfAnEngineThatClaimsNothingLeavesTheRelations) {
  const Judged judged = judge("not-deterministic");
  EXPECT_EQ(judged.status, 0) << judged.out << judged.err;
  const json::object& first = judged.report.at("results").as_array()[0].as_object();
  EXPECT_EQ(first.at("left_out").as_array().size(), 1u);
}

TEST_F(Misbehaving, TheOracleSaysWhatItLacksOfTheEngine) {
  const std::string dropout = folder_ / "dropout.yaml";
  std::ofstream(dropout) << "schema: 1\nname: dropout\nmodel: {pattern: \"-\", dropout: 0.5}\n"
                            "cuda_graph: {impl: none}\n";
  for (const auto& [how, why] : std::map<std::string, std::string>{
           {"well", "R16 oracle: applies"},
           {"has-its-own-weights", "R16 oracle: not applicable, the engine does not begin with"},
           {"has-its-own-dropout", "R16 oracle: not applicable, dropout draws masks"}}) {
    const Ran ran = run_lockstep("describe --engine '" + bad_engine() + " " + how + " " +
                                 lockstep_program() + "' " + dropout);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.out.find(why), std::string::npos) << how << "\n" << ran.out;
  }
}

TEST_F(Misbehaving, WhatIsNotHonouredIsProjectedAndSaid) {
  const Judged judged = judge("honours-little");
  EXPECT_EQ(judged.status, 0) << judged.out << judged.err;
  std::string keys;
  for (const json::value& one :
       judged.report.at("results").as_array()[0].at("projected").as_array())
    keys += std::string(one.at("key").as_string()) + " ";
  EXPECT_NE(keys.find("cuda_graph.impl "), std::string::npos) << keys;
  EXPECT_NE(keys.find("model.hidden "), std::string::npos) << keys;
}

}  // namespace
}  // namespace lockstep
