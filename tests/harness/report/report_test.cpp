// Results through JSON and back, JUnit, exit statuses, files whole or not at all.
#include "harness/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "harness/base/write_file.h"
#include "harness/expect/blind_spots.h"
#include "harness/report/result_json.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

CaseResult violated() {
  CaseResult one;
  one.name = "a<b";
  one.numerics = "fp32";
  one.token = "lsX";
  one.verdict = Verdict::violated;
  one.judge = JudgeKind::gradient;
  one.reason = "x & y \"differ\"";
  one.first_difference = FirstDifference{.step = 2,
                                         .rank = 0,
                                         .microbatch = 1,
                                         .layer = 3,
                                         .op = "linear",
                                         .tensor = "layers.3.qkv",
                                         .index = 17,
                                         .row = 2,
                                         .column = 1,
                                         .document = 5,
                                         .position = 0,
                                         .got = "1 0x3f800000",
                                         .want = "2 0x40000000",
                                         .ulp = 8388608};
  one.counters = {{Counter::graph_replays, 16}};
  one.seconds = 0.25;
  one.replay = "lockstep replay lsX --device sim";
  one.device.kind = "sim";
  return one;
}

CaseResult with(Verdict verdict, JudgeKind judge = JudgeKind::none) {
  CaseResult one;
  one.verdict = verdict;
  one.judge = judge;
  return one;
}

TEST(ResultJson, ComesBackAsItWas) {
  const CaseResult one = violated();
  const CaseResult back =
      result_from_json(boost::json::parse(boost::json::serialize(to_json(one))));
  EXPECT_EQ(to_json(back), to_json(one));
  EXPECT_EQ(back.first_difference, one.first_difference);
  EXPECT_EQ(back.counters, one.counters);
}

TEST(ResultJson, TheSummaryCounts) {
  const auto run = run_to_json(
      {violated(), with(Verdict::holds), with(Verdict::skipped), with(Verdict::broken)}, {}, 1);
  const auto& summary = run.at("summary");
  EXPECT_EQ(summary.at("scenarios").to_number<int>(), 4);
  for (const char* key : {"held", "violated", "broken", "skipped"})
    EXPECT_EQ(summary.at(key).to_number<int>(), 1) << key;
  EXPECT_EQ(summary.at("gave_up").to_number<int>(), 0);
}

TEST(FailureBlock, NamesTheElementAndTheReplay) {
  const std::string block = failure_block(violated());
  for (const char* part :
       {"step 2, rank 0, microbatch 1, layer 3", "layers.3.qkv, written by linear", "[2, 1]",
        "document 5", "position 0", "1 0x3f800000", "2 0x40000000", "8388608 ulp",
        "replay: lockstep replay lsX --device sim"}) {
    EXPECT_THAT(block, HasSubstr(part));
  }
}

// A gradient has no op of its own in the result: its name says which op writes it, and what comes
// from another engine has no op of ours.
TEST(FailureBlock, NamesTheOpThatWritesAGradientOrALoss) {
  CaseResult result = violated();
  FirstDifference& where = *result.first_difference;
  const auto tensor_line = [&](const std::string& tensor, const std::string& op) {
    where.tensor = tensor;
    where.op = op;
    return failure_block(result);
  };
  EXPECT_THAT(tensor_line("layers.0.a_log.gradient", ""), HasSubstr("written by scan_backward\n"));
  EXPECT_THAT(tensor_line("head.weight.gradient", "accumulate"),
              HasSubstr("written by linear_weight_gradient and accumulate\n"));
  EXPECT_THAT(tensor_line("layers.0.aux_loss", ""), HasSubstr("written by router_loss\n"));
  EXPECT_THAT(tensor_line("loss", ""), HasSubstr("written by microbatch_loss\n"));
  EXPECT_THAT(tensor_line("norm", ""), HasSubstr("written by gradient_norm\n"));
  EXPECT_THAT(tensor_line("tokens", ""), testing::Not(HasSubstr("written by")));
  where.got_from = "a run";
  EXPECT_THAT(tensor_line("loss", ""), testing::Not(HasSubstr("written by")));
}

// The op is named with what it reads, and a result keeps it; an op without a name says that there
// is none.
TEST(FailureBlock, NamesTheFirstOpThatIsWrong) {
  CaseResult result = violated();
  result.wrong_op = WrongOp{.step = 1,
                            .rank = 0,
                            .microbatch = 2,
                            .layer = 0,
                            .backward = true,
                            .op = "conv_backward",
                            .operand = "dx",
                            .inputs = {{"dy", "scan_backward"}, {"tokens", ""}}};
  EXPECT_THAT(failure_block(result),
              AllOf(HasSubstr("  first op  conv_backward, layer 0, microbatch 2, step 1, rank 0: "
                              "its `dx` is the first that is wrong\n"),
                    HasSubstr("  it reads  dy of scan_backward; tokens of no op\n")));
  EXPECT_EQ(result_from_json(to_json(result)).wrong_op, result.wrong_op);
  result.wrong_op = WrongOp();
  EXPECT_THAT(failure_block(result), HasSubstr("  first op  none: "));
  EXPECT_EQ(result_from_json(to_json(result)).wrong_op, WrongOp());
  result.wrong_op.reset();
  EXPECT_FALSE(result_from_json(to_json(result)).wrong_op);
}

// A counter stands for calls, which the report of a run that did not make them names.
TEST(FailureBlock, NamesTheCallsOfACounter) {
  CaseResult result = violated();
  result.judge = JudgeKind::vacuous;
  result.reason = "pairs_routed is 1, expected 2 (tokens x top_k x layers of experts)";
  EXPECT_THAT(failure_block(result), HasSubstr("  counts    count_pairs\n"));
  result.reason = "hazards_checked is 0, expected 1 or more (checker.hazards is true)";
  EXPECT_THAT(failure_block(result), testing::Not(HasSubstr("  counts ")));
  result.reason = "no step has a target: every loss is zero";
  EXPECT_THAT(failure_block(result), testing::Not(HasSubstr("  counts ")));
}

// Two neighbours in bf16 are one step apart, as they are stored.
TEST(FailureBlock, CountsInTheTypeThatIsStored) {
  CaseResult result = violated();
  FirstDifference& where = *result.first_difference;
  where.bf16 = true;
  where.got = "-0.02319336 0xbcbe0000";
  where.want = "-0.02331543 0xbcbf0000";
  where.ulp = 65536;
  where.stored_ulp = 1;
  const std::string block = failure_block(result_from_json(to_json(result)));
  for (const char* part : {"-0.02319336 0xbcbe (bf16)\n", "-0.02331543 0xbcbf (bf16)\n",
                           "distance  1 ulp of bf16\n"}) {
    EXPECT_THAT(block, HasSubstr(part));
  }
}

TEST(Table, OnATerminalFitsAndTellsAReasonOnce) {
  CaseResult failed;
  failed.name = std::string(44, 'n');
  failed.numerics = "fp32";
  failed.verdict = Verdict::violated;
  failed.reason = "told by the block";
  CaseResult skipped;
  skipped.name = "s";
  skipped.numerics = "bf16";
  skipped.verdict = Verdict::skipped;
  skipped.reason =
      "this machine has no GPU, and the scenario asks for two of them, so it is not run";
  const std::string plain = table({failed, skipped});
  EXPECT_NE(plain.find("fallbacks"), std::string::npos);
  EXPECT_NE(plain.find("told by the block"), std::string::npos);
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  const std::string fits = table({failed, skipped}, {.colours = false, .width = 80});
  EXPECT_EQ(fits.find("told by the block"), std::string::npos);
  EXPECT_EQ(fits.find("fallbacks"), std::string::npos);
  std::istringstream lines(fits);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  const std::string colours = table({failed, skipped}, {.colours = true, .width = 80});
  EXPECT_NE(colours.find("\033[31mviolated\033[0m"), std::string::npos);
}

TEST(Table, HasTheBeginningOfAFailureAndTheWholeOfTheRest) {
  CaseResult failed, held;
  failed.name = held.name = "n";
  failed.numerics = held.numerics = "fp32";
  failed.verdict = Verdict::violated;
  failed.reason = held.reason =
      "read after write: pack_metadata (metadata, microbatch 0, step 0) is "
      "not ordered after copy of 580 bytes";
  const std::string text = table({failed, held});
  EXPECT_THAT(text, HasSubstr("  read after write: pack_metadata (metadata, microbatch 0, ...\n"));
  EXPECT_THAT(text, HasSubstr("  " + held.reason + "\n"));
}

TEST(Table, SaysWhatWouldShowABlindSpot) {
  Scenario scenario;
  scenario.parallel.data = 2;
  scenario.fsdp.strategy = Sharding::optim_grads_params;
  CaseResult held;
  held.name = "n";
  held.numerics = "fp32";
  held.blind = blind_spots(scenario);
  EXPECT_THAT(table({held}),
              HasSubstr("blind: no dropout: a capture that draws random numbers changes "
                        "nothing; to show it: model.dropout: 0.1 (n)\n"));
}

TEST(NextCommands, NameTheFileTheSmallerOneAndThePage) {
  CaseResult failed;
  failed.token = "lsX";
  failed.file = "a b.yaml";
  failed.replay = "lockstep replay lsX --device sim --plant p";
  EXPECT_EQ(next_commands(failed),
            "  lockstep replay 'a b.yaml' --device sim --plant p\n"
            "  lockstep shrink 'a b.yaml' --device sim --plant p -o small.yaml\n"
            "  lockstep replay 'a b.yaml' --device sim --plant p --html failure.html\n");
  for (const JudgeKind judge : {JudgeKind::counters, JudgeKind::expectation}) {
    failed.judge = judge;
    EXPECT_EQ(next_commands(failed).find("shrink"), std::string::npos);
  }
  failed.file.clear();
  failed.judge = JudgeKind::loss;
  EXPECT_NE(next_commands(failed).find("lockstep shrink lsX "), std::string::npos);
  failed.replay.clear();
  EXPECT_EQ(next_commands(failed), "");
}

TEST(Junit, SaysWhereAndWhenAndOfWhichFile) {
  CaseResult one = with(Verdict::holds);
  one.file = "a folder/<b>.yaml";
  one.device.kind = "sim";
  const std::string xml = junit({one});
  for (const char* part :
       {"file=\"a folder/&lt;b&gt;.yaml\"", "<property name=\"device\" value=\"sim\"/>",
        "<property name=\"revision\"", "hostname=\"", "timestamp=\"20"}) {
    EXPECT_THAT(xml, HasSubstr(part));
  }
}

TEST(Junit, EscapesAndCounts) {
  const std::string xml = junit({violated(), with(Verdict::skipped)});
  EXPECT_THAT(xml, HasSubstr("tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("name=\"a&lt;b\""));
  EXPECT_THAT(xml, HasSubstr("x &amp; y &quot;differ&quot;"));
}

TEST(ExitStatus, TheWorstVerdictDecides) {
  EXPECT_EQ(exit_status({with(Verdict::holds), with(Verdict::skipped)}), ExitStatus::held);
  EXPECT_EQ(exit_status({with(Verdict::holds), with(Verdict::gave_up)}), ExitStatus::gave_up);
  EXPECT_EQ(exit_status({with(Verdict::gave_up), with(Verdict::broken, JudgeKind::device)}),
            ExitStatus::world_failed);
  EXPECT_EQ(exit_status({with(Verdict::broken, JudgeKind::device),
                         with(Verdict::broken, JudgeKind::watchdog)}),
            ExitStatus::hang);
  EXPECT_EQ(exit_status({with(Verdict::broken, JudgeKind::watchdog), violated()}),
            ExitStatus::violated);
}

TEST(WriteFile, ReplacesWholeOrNotAtAll) {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  write_file(folder / "a", "new");
  EXPECT_EQ(slurp(folder / "a"), "new");
  EXPECT_THROW(write_file(folder / "none/a", "x"), WorldError);
  std::filesystem::create_directory(folder / "folder");
  EXPECT_THROW(write_file(folder / "folder", "x"), WorldError);
  // No temporary stays behind.
  const std::filesystem::directory_iterator entries(folder / ".");
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 2);
}

}  // namespace
}  // namespace lockstep
