// `lockstep fuzz` as scripts see it: equal seeds, shards, logs, corpus, reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

#include "tests/harness/campaign/campaign_run.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;

TEST_F(Campaign, TellsWhereTheTimeOfItsCasesWent) {
  const std::string report = folder_ / "r.json";
  const Ran ran = fuzz("--seed 1 --count 6 --jobs 2 --times --json " + report);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("a case, in the mean"));
  const boost::json::value times = boost::json::parse(slurp(report)).at("times");
  EXPECT_EQ(times.at("cases").to_number<int>(), 6);
  const double reference = times.at("kinds").at("reference").at("seconds").to_number<double>();
  EXPECT_GT(reference, 0);
  EXPECT_LT(reference, times.at("seconds").to_number<double>());
}

TEST_F(Campaign, EqualSeedsGiveEqualCasesAndVerdictsOnAnyNumberOfWorkers) {
  const std::string one = folder_ / "one", two = folder_ / "two";
  const int status = fuzz("--seed 11 --count 12 --jobs 1 --log " + one).status;
  EXPECT_EQ(fuzz("--seed 11 --count 12 --jobs 3 --log " + two).status, status);
  EXPECT_EQ(cases_of(one), cases_of(two));
  EXPECT_EQ(numbers_of(one), first(12));
  EXPECT_EQ(near("--seed 12 --count 12 --log " + (folder_ / "other")).status, 0);
  EXPECT_NE(cases_of(one), cases_of(folder_ / "other"));
}

TEST_F(Campaign, ALogIsContinuedOnlyByTheSameCampaign) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(near("--seed 3 --count 5 --log " + log).status, 0);
  const std::string before = slurp(log);
  const Ran again = near("--seed 3 --count 5 --log " + log);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("--resume continues it"));
  const Ran other = near("--seed 4 --count 5 --resume --log " + log);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("begun with seed \"3\", this request has \"4\""));
  EXPECT_EQ(near("--seed 3 --shard 1/2 --resume --log " + log).status, 2);
  EXPECT_EQ(slurp(log), before);
  const Ran stranger = near("--seed 3 --resume --log " + folder_.file("text", "dear diary\n"));
  EXPECT_EQ(stranger.status, 2);
  EXPECT_THAT(stranger.err, HasSubstr("no line of a campaign's log"));
  EXPECT_EQ(near("--resume").status, 2);
}

// Each value of a header and of a case in turn is one of no type that it may have.
TEST_F(Campaign, ALineOfALogWithAValueOfAnotherTypeIsNamed) {
  const std::string log = folder_ / "log";
  ASSERT_EQ(near("--seed 3 --count 2 --log " + log).status, 0);
  std::istringstream lines(slurp(log));
  std::string header, first, second;
  std::getline(lines, header);
  std::getline(lines, first);
  std::getline(lines, second);
  const auto refused = [&](const std::string& text, const std::string& line) {
    SCOPED_TRACE(text);
    const Ran ran = near("--seed 3 --count 2 --resume --log " + folder_.file("changed", text));
    EXPECT_EQ(ran.status, 2);
    EXPECT_THAT(ran.err, HasSubstr("changed:" + line + ": is no line of a campaign's log"));
    EXPECT_THAT(ran.err, Not(HasSubstr("boost")));
    EXPECT_EQ(slurp(folder_ / "changed"), text);
  };
  refused("{\"campaign\": 7}\n", "1");
  refused("{\"campaign\": {\"seed\": 3}}\n", "1");
  refused("{\"campaign\": {\"seed\": \"3\", \"corpus_files\": [7]}}\n", "1");
  for (const char* key : {"case", "case_seed", "verdict", "judge", "counters", "seconds"}) {
    json::object changed = json::parse(second).as_object();
    ASSERT_TRUE(changed.contains(key)) << key;
    changed[key] = json::array{true};
    refused(header + "\n" + first + "\n" + json::serialize(changed) + "\n", "3");
    changed.erase(key);
    refused(header + "\n" + first + "\n" + json::serialize(changed) + "\n", "3");
  }
}

TEST_F(Campaign, ShardsCoverEveryCaseExactlyOnce) {
  std::map<std::int64_t, json::object> all;
  std::size_t lines = 0;
  for (const char* shard : {"0/3", "1/3", "2/3"}) {
    const std::string log = folder_ / ("log" + std::string(shard, 1));
    ASSERT_EQ(near("--seed 7 --count 50 --log " + log + " --shard " + shard).status, 0);
    const auto part = cases_of(log);
    lines += part.size();
    all.insert(part.begin(), part.end());
  }
  ASSERT_EQ(near("--seed 7 --count 50 --log " + (folder_ / "whole")).status, 0);
  EXPECT_EQ(lines, 50u);
  EXPECT_EQ(all, cases_of(folder_ / "whole"));
  for (const char* wrong : {"3/3", "1", "a/b", "-1/2", "1/0"}) {
    EXPECT_EQ(near(std::string("--count 1 --shard ") + wrong).status, 2) << wrong;
  }
}

TEST_F(Campaign, APlantedFaultIsFoundAndKeptOnceAClass) {
  const std::string corpus = folder_ / "corpus",
                    words =
                        "--seed 21 --count 12 --reruns 1 --plant "
                        "linear-weight-gradient-drops-first-row --corpus " +
                        corpus;
  const Ran found = fuzz(words + " --jobs 2 --json " + (folder_ / "r.json"));
  EXPECT_EQ(found.status, 1) << found.out << found.err;
  const json::value report = json::parse(slurp(folder_ / "r.json"));
  std::set<std::string> files;
  std::size_t failures = 0;
  for (const json::value& one : report.at("classes").as_array()) {
    files.insert(corpus + "/" + json::value_to<std::string>(one.at("file")));
    EXPECT_EQ(one.at("kind").as_string(), "deterministic");
    failures += one.at("cases").to_number<std::size_t>();
  }
  EXPECT_GT(failures, files.size()) << "several cases are of one class";
  const std::vector<std::string> kept = files_in(corpus);
  EXPECT_EQ(std::set<std::string>(kept.begin(), kept.end()), files);
  ASSERT_FALSE(kept.empty());

  // The kept file fails in the same way, and holds where the fault is not.
  const Ran verify = run_lockstep(
      "verify --device sim --plant linear-weight-gradient-drops-first-row " + kept.front());
  EXPECT_EQ(verify.status, 1) << verify.out << verify.err;
  EXPECT_EQ(run_lockstep("verify --device sim " + kept.front()).status, 0);

  // The same campaign again replays the file first, finds the same, and keeps nothing new.
  const Ran again = fuzz(words + " --jobs 1 --log " +
                         (folder_ / "log"));  // One worker, so that the log is in order.
  EXPECT_EQ(again.status, 1);
  EXPECT_EQ(files_in(corpus), kept);
  std::istringstream lines(slurp(folder_ / "log"));
  std::string line;
  std::getline(lines, line);
  std::set<std::string> replayed;
  for (std::size_t i = 0; i < kept.size() && std::getline(lines, line); ++i) {
    const json::value first_lines = json::parse(line);
    ASSERT_TRUE(first_lines.as_object().contains("corpus")) << "the corpus comes first";
    replayed.insert(corpus + "/" + json::value_to<std::string>(first_lines.at("corpus")));
  }
  EXPECT_EQ(replayed, files);
}

// A fault that was asked for and struck nowhere would pass for one that nobody sees.
TEST_F(Campaign, APlantedFaultThatNoCaseMetIsAFailure) {
  const std::string never = "--like " +
                            folder_.file("like.yaml",
                                         "schema: 1\nname: like\nmodel: {pattern: '*'}\n"
                                         "parallel: {data: 1}\ncuda_graph: {impl: none}\n") +
                            " --seed 3 --count 4 --jobs 1 --reruns 0 --plant ";
  const Ran ran = fuzz(never + "capture-passes-left-out");
  EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("FAIL the campaign is vacuous: the planted fault "
                                 "capture-passes-left-out met no place in any case"));
  EXPECT_EQ(fuzz("--seed 3 --case 2 --plant conv-newest-tap-first").status, 0)
      << "one case says nothing of the others";
}

// A corpus belongs to one shard, so that whatever failed there must run there again.
TEST_F(Campaign, AShardRunsItsWholeCorpus) {
  const std::string corpus = folder_ / "corpus", log = folder_ / "log";
  std::filesystem::create_directory(corpus);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    folder_.file(std::string("corpus/") + name + ".yaml",
                 std::string("schema: 1\nname: ") + name +
                     "\nnumerics: [fp32]\nmodel: {pattern: \"*E\"}\ncuda_graph: {modules: [moe, "
                     "moe_router]}\nexpect: {verdict: refused, error: L17}\n");
  }
  for (const std::string shard : {"0", "1", "3"}) {
    const Ran ran = near("--seed 1 --count 4 --shard " + shard + "/4 --corpus " + corpus +
                         " --log " + log + shard);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr(": 6 cases, 6 held")) << "five of the corpus and a random one";
  }
  // One failing file at each place of the corpus is found by each shard.
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const std::string file = std::string("corpus/") + name + ".yaml";
    const std::string held = slurp(folder_ / file);
    folder_.file(file, held.substr(0, held.find("L17")) + "L18}\n");
    EXPECT_EQ(near("--seed 1 --count 4 --shard 0/4 --reruns 0 --corpus " + corpus).status, 1)
        << name;
    folder_.file(file, held);
  }
}

TEST_F(Campaign, ABrokenFileOfTheCorpusIsSetAsideAndAnExpectedRefusalHolds) {
  const std::string corpus = folder_ / "corpus";
  std::filesystem::create_directory(corpus);
  folder_.file(
      "corpus/a.yaml",
      "schema: 1\nname: a\nnumerics: [fp32]\nmodel: {pattern: \"*E\"}\ncuda_graph: {modules: [moe, "
      "moe_router]}\nexpect: {verdict: refused, error: L17}\n");
  EXPECT_EQ(near("--seed 1 --count 1 --corpus " + corpus).status, 0);
  const std::string broken = "schema: 1\nnmae: b\n";
  folder_.file("corpus/b.yaml", broken);
  const std::string words = "--seed 1 --count 3 --corpus " + corpus,
                    log = " --log " + (folder_ / "log");
  const Ran ran = near(words + log + " --json " + (folder_ / "r.json"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("[Y03]"));
  EXPECT_THAT(ran.out, HasSubstr("1 file of the corpus is no scenario of this revision: moved to "
                                 "unreadable/; correct or delete it"));
  EXPECT_THAT(ran.out, HasSubstr(": 4 cases, 4 held")) << "the others run";
  EXPECT_EQ(slurp(corpus + "/unreadable/b.yaml"), broken);
  const json::value report = json::parse(slurp(folder_ / "r.json"));
  EXPECT_EQ(report.at("unreadable").at(0).at("file"), "b.yaml");
  // It stops no later night, nor a resumed one.
  EXPECT_EQ(near(words).status, 0);
  EXPECT_EQ(near(words + log + " --resume").status, 0);
}

TEST_F(Campaign, ABudgetThatEndsBeforeTheCountGivesUp) {
  const Ran ran = near("--seed 1 --count 100000000 --budget 0.5");
  EXPECT_EQ(ran.status, 5) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("the budget ended first"));
  EXPECT_EQ(near("--seed 1 --budget 0.5").status, 0);
}

TEST_F(Campaign, AFreshSeedIsPrintedAndMayComeFromTheEnvironment) {
  const Ran one = near("--count 1"), two = near("--count 1");
  EXPECT_THAT(one.err, HasSubstr("lockstep fuzz: seed "));
  EXPECT_NE(one.err, two.err);
  ::setenv("LOCKSTEP_SEED", "77", 1);
  EXPECT_THAT(near("--count 1").err, HasSubstr("seed 77,"));
  ::unsetenv("LOCKSTEP_SEED");
  EXPECT_EQ(near("--count 1 --seed x").status, 2);
  EXPECT_EQ(near("--count 1 --profile smal").status, 2);
}

TEST_F(Campaign, TheReportCountsFeaturesPairsAndBoundaries) {
  const Ran ran = fuzz("--seed 9 --count 6 --jobs 2 --coverage --json " + (folder_ / "r.json") +
                       " --junit " + (folder_ / "r.xml"));
  EXPECT_THAT(ran.out, HasSubstr("pairs that met: "));
  EXPECT_THAT(ran.out, HasSubstr("never met: "));
  const json::value report = json::parse(slurp(folder_ / "r.json"));
  EXPECT_EQ(report.at("summary").at("scenarios").to_number<int>(), 6);
  const json::value& drawn = report.at("distribution");
  EXPECT_TRUE(drawn.at("features").as_object().contains("mamba"));
  EXPECT_TRUE(drawn.at("boundaries").as_object().contains("capacity + 1"));
  EXPECT_EQ(
      drawn.at("pairs_met").to_number<std::size_t>() + drawn.at("never_met").as_array().size(),
      drawn.at("pairs_that_can_meet").to_number<std::size_t>());
  EXPECT_THAT(slurp(folder_ / "r.xml"), HasSubstr("<testsuite"));
}

}  // namespace
}  // namespace lockstep
