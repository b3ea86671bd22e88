// Campaigns of several nights: which failures are new, which came again, and how to run them.
#include "harness/campaign/nights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/base/errors.h"
#include "harness/campaign/campaign.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

// The report of a campaign that failed in these classes, with so many cases each.
std::string report(std::uint64_t seed, const char* date,
                   const std::vector<std::pair<std::string, std::int64_t>>& classes) {
  CampaignOptions options;
  options.seed = seed;
  CampaignReport found;
  found.held = 100;
  found.seconds = 12.5;
  found.device.kind = "sim";
  for (const auto& [name, cases] : classes) {
    CaseRecord record;
    record.index = 7;
    record.failure_class = name;
    record.kind = "deterministic";
    found.classes.push_back({record, cases});
    found.violated += cases;
  }
  json::object run = campaign_json(options, found);
  run["date"] = date;
  return json::serialize(run);
}

TEST(Nights, AreInTheOrderOfTheirDatesWithWhatIsNewInEach) {
  const TemporaryFolder folder;
  const std::string late = folder.file("late.json", report(9, "2026-03-03", {{"a", 2}, {"c", 12}})),
                    early =
                        folder.file("early.json", report(5, "2026-03-01", {{"a", 1}, {"b", 3}})),
                    held = folder.file("held.json", report(6, "2026-03-02", {}));
  const json::object nights = nights_of({late, early, held});
  const json::array& rows = nights.at("nights").as_array();
  ASSERT_EQ(rows.size(), 3u);
  const std::tuple<const char*, std::int64_t, std::int64_t> expected[] = {
      {"5", 4, 2}, {"6", 0, 0}, {"9", 14, 1}};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& [seed, failures, fresh] = expected[i];
    EXPECT_EQ(rows[i].at("seed"), seed);
    EXPECT_EQ(rows[i].at("failures"), failures);
    EXPECT_EQ(rows[i].at("new_classes"), fresh);
    EXPECT_EQ(rows[i].at("seconds"), 13);
  }
  // What failed last comes first.
  const json::array& classes = nights.at("classes").as_array();
  ASSERT_EQ(classes.size(), 3u);
  EXPECT_EQ(classes[0].at("class"), "a");
  EXPECT_EQ(classes[0].at("nights"), "1.2");
  EXPECT_EQ(classes[0].at("first"), "2026-03-01");
  EXPECT_EQ(classes[0].at("last"), "2026-03-03");
  EXPECT_EQ(classes[0].at("again"), "lockstep fuzz --seed 9 --case 7 --device sim");
  EXPECT_EQ(classes[1].at("nights"), "..+");
  EXPECT_EQ(classes[2].at("class"), "b");
  EXPECT_EQ(classes[2].at("nights"), "3..");
  EXPECT_THAT(nights_text(nights),
              HasSubstr("2026-03-01  seed 5, shard 0/1: 104 cases, 4 failures, "
                        "2 new classes"));
}

TEST(Nights, ARunThatIsNoCampaignIsRefusedByItsName) {
  const TemporaryFolder folder;
  const std::string verify = folder.file("verify.json", R"({"tool": "lockstep", "results": []})");
  try {
    nights_of({verify});
    FAIL() << "it was taken";
  } catch (const RequestError& error) {
    EXPECT_THAT(error.what(), HasSubstr(verify));
  }
}

TEST(NightsCommand, ANightThatEndedBeforeItsFirstCaseIsARow) {
  const TemporaryFolder folder;
  const std::string broken = folder / "broken.json", page = folder / "nights.html",
                    before = folder.file("before.json", report(6, "2000-03-02", {{"a", 1}}));
  ASSERT_EQ(run_lockstep("fuzz --device sim --with nowhere --json " + broken).status, 2);
  const json::object nights = nights_of({broken, before});
  const json::array& rows = nights.at("nights").as_array();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].at("file").as_string(), broken) << "it has a date, so it is the later one";
  EXPECT_THAT(rows[1].at("error").as_string().c_str(), testing::StartsWith("status 2: "));
  EXPECT_EQ(nights.at("classes").at(0).at("nights"), "1-");
  const Ran ran = run_lockstep("fuzz --nights " + broken + " " + before + " --html " + page);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("broken.json: ended before its first case, status 2: --with"));
  EXPECT_THAT(slurp(page), HasSubstr("nowhere"));
}

// A class that the corpus led to is replayed as well as one of a random case.
TEST(NightsCommand, TellsHowToReplayWhatTheCorpusFound) {
  const TemporaryFolder folder;
  const std::string night = folder / "night.json",
                    words =
                        "fuzz --device sim --count 6 --reruns 0 --plant rms-norm-forgets-eps "
                        "--seed 3 --corpus " +
                        (folder / "corpus");
  ASSERT_EQ(run_lockstep(words).status, 1);
  ASSERT_EQ(run_lockstep(words + " --json " + night).status, 1);
  const json::value run = json::parse(slurp(night));
  EXPECT_EQ(run.at("classes").at(0).at("first_case"), -1);
  const Ran ran = run_lockstep("fuzz --nights " + night);
  const std::string begin = "lockstep replay ls";
  const std::size_t at = ran.out.find(begin);
  ASSERT_NE(at, std::string::npos) << ran.out;
  const std::size_t words_at = at + std::string("lockstep ").size();
  const std::string again = ran.out.substr(words_at, ran.out.find('\n', at) - words_at);
  EXPECT_THAT(again, HasSubstr("--plant rms-norm-forgets-eps"));
  EXPECT_EQ(run_lockstep(again).status, 1) << again;
}

TEST(NightsCommand, ReadsWhatACampaignWroteAndRunsNothing) {
  const TemporaryFolder folder;
  const std::string night = folder / "night.json", page = folder / "nights.html";
  EXPECT_EQ(run_lockstep("fuzz --device sim --seed 3 --count 6 --reruns 1 --plant "
                         "rms-norm-forgets-eps --json " +
                         night)
                .status,
            1);
  const Ran ran = run_lockstep("fuzz --nights " + night + " --html " + page);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, testing::ContainsRegex("seed 3, shard 0/1: 6 cases, [1-6] failures"));
  EXPECT_THAT(slurp(page), HasSubstr("lockstep replay ls"));
  EXPECT_EQ(run_lockstep("fuzz --nights " + night + " --budget 3").status, 2);
  EXPECT_EQ(run_lockstep("fuzz --nights").status, 2);
}

}  // namespace
}  // namespace lockstep
