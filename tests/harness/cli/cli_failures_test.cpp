// The results that a script finds where a command fails: the exit status, and a report in the files
// that `--json` and `--junit` name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>

#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FailureFile : public testing::Test {
 protected:
  // The object after a command that must end with this status; what an earlier run wrote must be
  // gone.
  boost::json::object after(int status, const std::string& words) {
    const std::string file = folder_.file("report.json", "of an earlier run");
    const Ran ran = run_lockstep(words + " --json " + file);
    EXPECT_EQ(ran.status, status) << words << "\n" << ran.err;
    boost::system::error_code bad;
    const boost::json::value value = boost::json::parse(slurp(file), bad);
    EXPECT_FALSE(bad) << words;
    return bad ? boost::json::object{} : value.as_object();
  }
  void tells(int status, const std::string& words, const std::string& text) {
    const boost::json::object run = after(status, words);
    SCOPED_TRACE(words);
    ASSERT_TRUE(run.contains("error"));
    EXPECT_EQ(run.at("tool").as_string(), "lockstep");
    EXPECT_TRUE(run.at("results").as_array().empty());
    EXPECT_EQ(run.at("summary").at("held").to_number<int>(), 0);
    EXPECT_EQ(run.at("error").at("status").to_number<int>(), status);
    EXPECT_THAT(run.at("error").at("text").as_string().c_str(), HasSubstr(text));
  }

  TemporaryFolder folder_;
  const std::string legal_ = folder_.file("legal.yaml", "schema: 1\nname: legal\n");
  const std::string illegal_ =
      folder_.file("illegal.yaml", "schema: 1\nname: illegal\ntraining: {in_flight: 3}\n");
};

TEST_F(FailureFile, ARefusedScenarioIsTold) {
  for (const char* command : {"verify", "train", "replay", "bench", "plan-packing"}) {
    tells(2, std::string(command) + " --device sim " + illegal_,
          "illegal.yaml:3:23: training.in_flight");
  }
  tells(2, "shrink --device sim " + illegal_ + " -o " + (folder_ / "small.yaml"), "[L13]");
}

// A daemon may have closed its standard descriptors; the worker's pipes must not be taken for them.
TEST_F(FailureFile, ClosedDescriptorsChangeNoVerdict) {
  const std::string broken = "verify --device sim --plant rms-norm-forgets-eps " + legal_;
  for (const char* closed : {"<&-", "2>&-", "<&- 2>&-"}) {
    EXPECT_EQ(run_lockstep("verify --device sim " + legal_ + " " + closed + " #").status, 0)
        << closed;
    EXPECT_EQ(run_lockstep(broken + " " + closed + " #").status, 1) << closed;
  }
}

TEST_F(FailureFile, AReportThatCannotBeWrittenKeepsNoOtherBack) {
  const std::string junit = folder_.file("old.xml", "of an earlier run"),
                    html = folder_.file("old.html", "earlier");
  const std::string words =
      "verify --device sim --quiet --plant rms-norm-forgets-eps " + legal_ + " --junit " + junit;
  EXPECT_EQ(run_lockstep(words + " --json /dev/full --html " + html).status, 3);
  EXPECT_THAT(slurp(junit), HasSubstr("failures=\"1\""));
  EXPECT_THAT(slurp(html), HasSubstr("<html"));
}

// Hours of work are not begun for a report that has no place.
TEST_F(FailureFile, AReportWithoutAPlaceIsToldBeforeTheWork) {
  const std::string junit = folder_.file("old.xml", "of an earlier run");
  for (const std::string report : {" --json ", " --html "}) {
    const Ran ran = run_lockstep("verify --device sim " + legal_ + " --junit " + junit + report +
                                 (folder_ / "no/such/file"));
    EXPECT_EQ(ran.status, 3);
    EXPECT_THAT(ran.err, HasSubstr("no/such/file: cannot be written there"));
    EXPECT_EQ(ran.out, "") << "no case has run";
    EXPECT_THAT(slurp(junit), HasSubstr("status 3: ")) << report;
  }
}

TEST_F(FailureFile, AWrongRequestIsTold) {
  tells(2, "verify --device sim " + (folder_ / "absent.yaml"), "[Y01]");
  tells(2, "verify --device sim --edgs", "nearest: --edges");
  tells(2, "verify -x", "unknown option -x: options begin with two dashes, see --help");
  tells(2, "replay --device sim lsAAAA", "token");
  tells(2, "fuzz --device sim --resume", "--resume needs --log");
  tells(2, "mutate --scenarios 1 --only no-such-fault", "no fault has such a name");
  tells(2, "plan-packing --device sim " + (folder_ / "absent.txt"), "absent.txt");
}

TEST_F(FailureFile, AFailureOfTheWorldIsTold) {
  const std::string many =
      folder_.file("many.yaml", "schema: 1\nname: many\nparallel: {data: 2, transport: nccl}\n");
  tells(3, "train --device sim " + many, "NCCL");
  tells(3, "verify --device sim " + many, "NCCL");
  tells(3, "shrink --device sim " + many + " -o " + (folder_ / "small.yaml"), "NCCL");
  tells(3, "train --device sim " + legal_ + " --resume " + (folder_ / "absent"), "absent");
}

TEST_F(FailureFile, AJUnitReportOfAnEarlierRunIsReplaced) {
  const std::string file = folder_.file("report.xml", "of an earlier run");
  EXPECT_EQ(run_lockstep("verify --device sim " + illegal_ + " --junit " + file).status, 2);
  EXPECT_THAT(slurp(file), AllOf(HasSubstr("errors=\"1\""), HasSubstr("status 2: "),
                                 HasSubstr("illegal.yaml:3:23")));
  EXPECT_EQ(run_lockstep("verify --device sim " + legal_ + " --junit=" + file).status, 0);
  EXPECT_THAT(slurp(file), AllOf(HasSubstr("errors=\"0\""), HasSubstr("name=\"legal\"")));
  EXPECT_EQ(
      run_lockstep("verify --device sim " + legal_ + " --html /dev/full --junit " + file).status,
      3);
  EXPECT_THAT(slurp(file), HasSubstr("name=\"legal\""));
}

TEST_F(FailureFile, WhatACommandHasWrittenStays) {
  const boost::json::object described = after(2, "describe " + illegal_);
  EXPECT_EQ(described.at("errors").at(0).at("rule").as_string(), "L13");
  const boost::json::object run = after(3, "verify --device sim " + legal_ + " --html /dev/full");
  EXPECT_FALSE(run.contains("error"));
  EXPECT_EQ(run.at("results").as_array().size(), 1u);
}

TEST_F(FailureFile, AFileWithoutANameIsAWrongRequest) {
  EXPECT_EQ(run_lockstep("verify --device sim " + legal_ + " --json=").status, 2);
  EXPECT_EQ(run_lockstep("verify --device sim " + legal_ + " --json ''").status, 2);
}

TEST_F(FailureFile, ListsAreWrittenToo) {
  const boost::json::object built = after(0, "describe --built");
  EXPECT_GT(built.at("features").as_array().size(), 20u);
  const boost::json::object faults =
      after(0, "mutate --list --scenarios 1 --only rms-norm-forgets-eps");
  ASSERT_EQ(faults.at("results").as_array().size(), 1u);
  EXPECT_EQ(faults.at("results").at(0).at("name").as_string(), "rms-norm-forgets-eps");
  EXPECT_FALSE(faults.at("results").at(0).at("finished").as_bool());
}

// /dev/stdout is such a link. A file put into its place would be the last that anybody prints
// there.
TEST_F(FailureFile, ALinkToAnOpenDescriptorIsNotReplaced) {
  const std::string link = folder_ / "link", out = folder_ / "out";
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  const std::string command =
      lockstep_program() + " describe --quiet --json " + link + " " + legal_ + " >" + out;
  ASSERT_EQ(std::system(shell_command(command).c_str()), 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(slurp(out), HasSubstr("\"tool\":\"lockstep\""));
  EXPECT_THAT(slurp(out), HasSubstr("keys without effect"));
}

TEST_F(FailureFile, ALinkToAFileStays) {
  std::filesystem::create_directory(folder_ / "reports");
  std::filesystem::create_symlink("reports/run.json", folder_ / "latest.json");
  ASSERT_EQ(run_lockstep("describe --json " + (folder_ / "latest.json ") + legal_).status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "latest.json"));
  EXPECT_THAT(slurp(folder_ / "reports/run.json"), HasSubstr("\"legal\":true"));
}

// A token may be of a build that had other rules, or features that this one lacks.
TEST(Token, IsReadByTheRulesOfFiles) {
  Scenario illegal, unbuilt;
  illegal.name = unbuilt.name = "x";
  illegal.training.in_flight = 3;
  unbuilt.parallel.tensor = 2;
  for (const std::string command : {"replay --device sim ", "shrink --device sim -o small.yaml "}) {
    const Ran first = run_lockstep(command + make_token(illegal));
    EXPECT_EQ(first.status, 2) << command;
    EXPECT_THAT(first.err, HasSubstr("[L13]"));
    const Ran second = run_lockstep(command + make_token(unbuilt));
    EXPECT_EQ(second.status, 2) << command;
    EXPECT_THAT(second.err, HasSubstr("[L00]"));
  }
}

// Collectives differ: in bf16 the copies of the weights are gathered too.
TEST(Describe, CountsWhatEachPrecisionMustCount) {
  const TemporaryFolder folder;
  const std::string report = folder / "report.json",
                    file =
                        folder.file("two.yaml",
                                    "schema: 1\nname: two\nnumerics: [fp32, bf16]\n"
                                    "fsdp: {strategy: optim_grads_params}\nparallel: {data: 2}\n");
  ASSERT_EQ(run_lockstep("describe --json " + report + " " + file).status, 0);
  const boost::json::value expected = boost::json::parse(slurp(report)).at("expected_counters");
  ASSERT_EQ(run_lockstep("verify --device sim --json " + report + " " + file).status, 0);
  const boost::json::value verified = boost::json::parse(slurp(report));
  ASSERT_EQ(verified.at("results").as_array().size(), 2u);
  for (const boost::json::value& result : verified.at("results").as_array()) {
    const auto& range = expected.at(result.at("numerics").as_string()).at("collectives");
    EXPECT_EQ(range.at("min").to_number<int>(),
              result.at("counters").at("collectives").to_number<int>());
    EXPECT_EQ(range.at("max"), range.at("min"));
  }
}

// Without graphs L23 does not look at the buckets; packs are laid out by them all the same.
TEST(Verify, BucketsOfNoGraphMayStandInAnyOrder) {
  const TemporaryFolder folder;
  const std::string file = folder.file("any.yaml",
                                       "schema: 1\nname: any\nnumerics: [fp32, bf16]\n"
                                       "cuda_graph: {impl: none, max_packed_seqs: [8, 4, 1]}\n");
  const Ran ran = run_lockstep("verify --device sim " + file);
  EXPECT_EQ(ran.status, 0) << ran.out;
}

}  // namespace
}  // namespace lockstep
