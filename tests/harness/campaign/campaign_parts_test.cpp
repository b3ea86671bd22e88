// The parts of a campaign that need no process: invalid cases, classes of failures, what further
// runs say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <thread>
#include <vector>

#include "harness/campaign/campaign.h"
#include "harness/campaign/corpus.h"
#include "harness/campaign/line_interval.h"
#include "harness/generate/case.h"
#include "harness/run/worker_place.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

TEST(InvalidCase, EachIsRefusedByTheOneRuleThatItBreaks) {
  std::map<std::string, int> broken;
  for (std::int64_t index = 0; index < 6000; ++index) {
    const CampaignCase one = make_case(1, index, "near-legal");
    ASSERT_TRUE(one.invalid);
    EXPECT_TRUE(check_legality(one.scenario).empty());
    const CaseResult result = judge_invalid_case(*one.invalid);
    EXPECT_EQ(result.verdict, Verdict::holds) << index << ": " << result.reason << "\n"
                                              << one.invalid->text;
    ++broken[one.invalid->rule];
  }
  for (const std::string& rule : rules_with_invalid_cases()) EXPECT_GE(broken[rule], 4) << rule;
}

// Some rules are broken by one layer more.
TEST(InvalidCase, AModelOfTheMostLayersIsRefusedByARuleToo) {
  Scenario deep;
  deep.name = "deep";
  deep.model.pattern = std::string(128, '-');
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Choices choices(seed);
    const CaseResult result = judge_invalid_case(make_invalid_case(deep, choices));
    EXPECT_EQ(result.verdict, Verdict::holds) << seed << ": " << result.reason;
  }
}

TEST(InvalidCase, AnotherRuleOrNoneIsAViolation) {
  InvalidCase near = *make_case(1, 1, "near-legal").invalid;
  near.rule = near.rule == "L17" ? "L18" : "L17";
  EXPECT_EQ(judge_invalid_case(near).judge, JudgeKind::refusal);
  near.text = to_yaml(make_case(1, 1, "small").scenario);
  EXPECT_EQ(judge_invalid_case(near).verdict, Verdict::violated);
  EXPECT_THAT(judge_invalid_case(near).reason, testing::HasSubstr("but it is legal"));
}

TEST(CampaignCase, IsEqualForEqualSeedAndIndexOnly) {
  EXPECT_EQ(canonical_form(make_case(5, 9, "small").scenario),
            canonical_form(make_case(5, 9, "small").scenario));
  EXPECT_NE(make_case(5, 9, "small").seed, make_case(5, 10, "small").seed);
  EXPECT_NE(make_case(5, 9, "small").seed, make_case(6, 9, "small").seed);
  int near = 0;
  for (std::int64_t index = 0; index < 2000; ++index)
    near += make_case(5, index, "small").invalid.has_value();
  EXPECT_GT(near, 60);  // About one in 20.
  EXPECT_LT(near, 150);
}

CaseResult differs(const std::string& tensor, const std::string& got = "1") {
  CaseResult result;
  result.verdict = Verdict::violated;
  result.judge = JudgeKind::gradient;
  result.first_difference = FirstDifference{};
  result.first_difference->op = "linear";
  result.first_difference->tensor = tensor;
  result.first_difference->got = got;
  return result;
}

TEST(FailureClass, IsJudgeOpAndKindOfTensor) {
  EXPECT_EQ(class_of(differs("layers.0.up.weight.gradient")),
            class_of(differs("layers.5.up.weight.gradient")));
  EXPECT_NE(class_of(differs("layers.0.up.weight.gradient")),
            class_of(differs("layers.0.down.weight.gradient")));
  CaseResult vacuous;
  vacuous.judge = JudgeKind::vacuous;
  vacuous.reason = "graph_replays is 16, the scenario demands 17";
  CaseResult other = vacuous;
  other.reason = "graph_replays is 3, the scenario demands 0x1f";
  EXPECT_EQ(class_of(vacuous), class_of(other));
  other.reason = "evaluations is 16, the scenario demands 17";
  EXPECT_NE(class_of(vacuous), class_of(other));
}

// The watchdog finds a hung worker at another place below the same function each time.
TEST(FailureClass, OfAHangIsTheInnermostFunctionOfLockstep) {
  const auto hang = [](const std::string& where) {
    CaseResult result;
    result.judge = JudgeKind::watchdog;
    result.reason = "no result within 60 s: running" + where;
    return class_of(result);
  };
  EXPECT_EQ(hang(", in malloc < lockstep::Arena::make < lockstep::Trainer::step"),
            "watchdog / running / lockstep::Arena::make");
  EXPECT_EQ(hang(", in memset < free < lockstep::Arena::make < lockstep::Trainer::evaluate"),
            hang(", in lockstep::Arena::make"));
  EXPECT_NE(hang(", in malloc < lockstep::Arena::free"), hang(", in lockstep::Arena::make"));
  EXPECT_EQ(hang(""), "watchdog / running");
  EXPECT_EQ(hang(", in malloc < main"), "watchdog / running");
}

// A dashboard finds a test of yesterday again by its name.
TEST(CampaignJunit, NamesEachCaseByItsClass) {
  CaseRecord record;
  record.index = 6;
  record.result.name = "random-6";
  record.result.numerics = "bf16";
  record.result.verdict = Verdict::violated;
  record.result.judge = JudgeKind::loss;
  record.result.reason = "it differs";
  record.failure_class = "loss / microbatch_loss / loss";
  record.kind = "deterministic";
  CampaignReport report;
  report.add(record);
  record.kind = "racy";
  report.add(record);
  const std::string text = campaign_junit(report);
  EXPECT_THAT(text, testing::HasSubstr("<testcase classname=\"lockstep.campaign\" "
                                       "name=\"loss / microbatch_loss / loss\""));
  EXPECT_THAT(text, testing::HasSubstr("name=\"loss / microbatch_loss / loss (racy)\""));
  EXPECT_THAT(text, testing::HasSubstr("it differs (first in random-6, bf16)"));
}

TEST(CampaignProgress, ANightHasFewLinesAndTheFirstComeSoon) {
  LineInterval interval;
  int lines = 0;
  for (double at = interval.seconds(); at < 5 * 3600; at += interval.seconds()) {
    ++lines;
    EXPECT_TRUE(at > 100 || lines <= 3);
    interval.shown();
  }
  EXPECT_GE(lines, 50);
  EXPECT_LE(lines, 70);
}

CaseRecord classified(const CaseResult& first, const std::vector<FurtherRun>& further) {
  CaseRecord record;
  record.result = first;
  classify(record, further);
  return record;
}

// A committed regression may be the first case of a class of which this campaign keeps a file.
TEST(FailureClass, NamesTheFileThatIsKeptWhereverItsFirstCaseLies) {
  CaseRecord old, found;
  old.result.verdict = found.result.verdict = Verdict::violated;
  old.failure_class = found.failure_class = "loss / a";
  old.corpus_file = "regression.yaml";
  CampaignReport report;
  report.add(old);
  EXPECT_EQ(campaign_json({}, report).at("classes").at(0).at("file"), "regression.yaml");
  found.index = 3;
  found.file = "loss-a-0123abcd.yaml";
  report.add(found);
  ASSERT_EQ(report.classes.size(), 1u);
  EXPECT_THAT(campaign_text({}, report),
              testing::AllOf(testing::HasSubstr("first in regression.yaml\n"),
                             testing::HasSubstr("kept as loss-a-0123abcd.yaml\n")));
  EXPECT_EQ(campaign_json({}, report).at("classes").at(0).at("file"), "loss-a-0123abcd.yaml");
}

TEST(Verdicts, ArePrintedAsWords) {
  EXPECT_EQ(testing::PrintToString(Verdict::gave_up), "gave_up");
}

TEST(FurtherRuns, TellARaceFromACertainty) {
  const CaseResult failed = differs("head.weight.gradient"), held;
  const CaseRecord certain = classified(failed, {{failed, "a"}, {failed, "a"}});
  EXPECT_EQ(certain.kind, "deterministic");
  EXPECT_EQ(certain.failed, 2);
  const CaseRecord race = classified(failed, {{failed, "a"}, {held, "a"}, {held, "a"}});
  EXPECT_EQ(race.kind, "racy");
  EXPECT_EQ(race.failed, 1);
  EXPECT_EQ(race.runs, 3);
  EXPECT_EQ(race.result.verdict, Verdict::violated) << "no mismatch is retried away";
  EXPECT_EQ(classified(failed, {{held, "a"}, {held, "a"}}).result.verdict, Verdict::violated);
  EXPECT_EQ(classified(failed, {{differs("head.weight.gradient", "2"), "a"}}).kind, "racy");
}

TEST(FurtherRuns, AnOracleWithTwoResultsIsToBlame) {
  const CaseResult failed = differs("head.weight.gradient");
  const CaseRecord record = classified(failed, {{failed, "a"}, {failed, "b"}});
  EXPECT_EQ(record.kind, "oracle unstable");
  EXPECT_EQ(record.result.verdict, Verdict::gave_up);
  EXPECT_EQ(record.result.judge, JudgeKind::oracle);
}

TEST(FurtherRuns, TheWorldIsNoViolation) {
  CaseResult failed;
  failed.verdict = Verdict::broken;
  for (const JudgeKind judge :
       {JudgeKind::device, JudgeKind::exception, JudgeKind::memory, JudgeKind::disk}) {
    failed.judge = judge;
    EXPECT_EQ(classified(failed, {{failed, ""}}).kind, "infrastructure");
  }
  failed.judge = JudgeKind::crash;
  EXPECT_EQ(classified(failed, {{failed, ""}}).kind, "deterministic");
}

TEST(CaseRecord, SurvivesTheLog) {
  CaseRecord record = classified(differs("head.weight.gradient"), {});
  record.index = 12;
  record.seed = 0xFFFFFFFFFFFFFFFF;
  record.traits = features_of(make_case(1, 0, "small").scenario);
  record.file = "a.yaml";
  const boost::json::object line = to_json(record);
  const CaseRecord again = record_from_json(boost::json::parse(boost::json::serialize(line)));
  EXPECT_EQ(to_json(again), line);
  EXPECT_EQ(again.traits, record.traits);
  EXPECT_EQ(again.seed, record.seed);
}

std::vector<int> cores_here() {
  cpu_set_t may;
  EXPECT_EQ(::sched_getaffinity(0, sizeof may, &may), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &may)) cores.push_back(core);
  }
  return cores;
}
// The cores of a thread that takes one and starts another thread, and of both once it has left it.
struct Taken {
  std::vector<int> own, child, left;
};
Taken taken(int number, int workers, const std::vector<int>& may) {
  Taken result;
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : may) CPU_SET(core, &set);
    EXPECT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    take_core(number, workers);
    result.own = cores_here();
    std::thread([&] { result.child = cores_here(); }).join();
    leave_core();
    result.left = cores_here();
  }).join();
  return result;
}

TEST(WorkerPlace, WorkersThatTakeTheMachineHaveACoreEach) {
  const std::vector<int> all = cores_here();
  const int cores = static_cast<int>(all.size());
  std::vector<int> owned;
  for (int k = 0; k < cores; ++k) {
    const Taken one = taken(k, cores, all);
    EXPECT_EQ(one.own.size(), 1u);
    EXPECT_EQ(one.child, one.own);
    EXPECT_EQ(one.left, all);
    owned.insert(owned.end(), one.own.begin(), one.own.end());
  }
  EXPECT_THAT(owned, testing::UnorderedElementsAreArray(all));
}
TEST(WorkerPlace, AMaskThatWasSetOutsideIsKept) {
  const int last = cores_here().back();
  EXPECT_EQ(taken(0, 1, {last}).own, std::vector<int>{last});
  EXPECT_EQ(taken(0, 1, {last}).left, std::vector<int>{last});
}
TEST(WorkerPlace, TooManyWorkersOrFewLeaveThePlaceToTheKernel) {
  const std::vector<int> all = cores_here();
  const int cores = static_cast<int>(all.size());
  EXPECT_EQ(taken(cores - 1, cores + 1, all).own, all);
  if (cores > 1) {
    EXPECT_EQ(taken(0, cores / 2, all).own, all);
  }
}

}  // namespace
}  // namespace lockstep
