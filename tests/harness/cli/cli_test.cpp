// The command line as scripts see it: statuses, streams, messages, files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "engine/device/judge_kind.h"
#include "scenarios/io/reader.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSmall = "schema: 1\nname: small\nnumerics: [fp32]\n";

class CommandLine : public testing::Test {
 protected:
  // `verify` of a file with this text on the simulated device.
  Ran verify(const std::string& text, const std::string& more = "") {
    return run_lockstep("verify --device sim " + more + " " + folder_.file("case.yaml", text));
  }
  void refused(const std::string& text, const std::string& rule, const std::string& says) {
    const Ran ran = verify(text);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr("[" + rule + "]"));
    EXPECT_THAT(ran.err, HasSubstr(says));
  }
  TemporaryFolder folder_;
};

TEST_F(CommandLine, HelpAndVersionGoToStdout) {
  for (const char* words :
       {"--help", "verify --help", "replay --help", "train --help", "bench --help",
        "describe --help", "doctor --help", "plan-packing --help"}) {
    const Ran ran = run_lockstep(words);
    EXPECT_EQ(ran.status, 0) << words;
    EXPECT_THAT(ran.out, HasSubstr("lockstep"));
    EXPECT_EQ(ran.err, "");
  }
  EXPECT_THAT(run_lockstep("--version").out, HasSubstr("lockstep 0."));
}

TEST_F(CommandLine, PlanPackingProposesCapacities) {
  const std::string histogram = folder_.file("packs.txt", "# documents packs\n2 5\n9 4\n20 1\n");
  const std::string json = folder_.file("plan.json", "");
  const Ran ran = run_lockstep("plan-packing --device sim --budget 0.01 --buckets 2 --json " +
                               json + " " + histogram);
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("10 packs, P50 2, P90 9, P99 20, at most 20"));
  // Times of a simulation are for programs alone, and marked.
  EXPECT_THAT(ran.out, HasSubstr("say nothing of a GPU"));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr(" ms")));
  EXPECT_THAT(ran.out, HasSubstr("by coverage alone: P90 -> 9 (90.00 %), P99 -> 20 (100.00 %)\n"
                                 "  cuda_graph: {max_packed_seqs: [9, 20]}\n"));
  const boost::json::object found = boost::json::parse(slurp(json)).as_object();
  EXPECT_EQ(found.at("histogram").as_array().size(), 3u);
  EXPECT_EQ(found.at("plans").as_array().size(), 3u);  // None, one and two buckets.
  EXPECT_TRUE(found.at("proposed").as_object().contains("max_packed_seqs"));
  EXPECT_TRUE(found.at("costs_are_simulated").as_bool());
  EXPECT_EQ(found.at("at").as_array().size(), 4u);  // p50, p90, p99, max.
  const Ran at = run_lockstep("plan-packing --device sim --at 1,p90 " + histogram);
  EXPECT_THAT(at.out, testing::ContainsRegex("\n1 +1 +0.00 %\np90 +9 +90.00 %\n"));
  EXPECT_EQ(run_lockstep("plan-packing --device sim --at p200 " + histogram).status, 2);
  // Plans the packs of a scenario.
  const std::string scenario = folder_.file("own.yaml", kSmall);
  const Ran own = run_lockstep("plan-packing --device sim --at 1,max " + scenario);
  EXPECT_THAT(own.out, HasSubstr("6 packs"));
  EXPECT_THAT(own.out, HasSubstr("too many documents"));
}

TEST_F(CommandLine, DescribesThePiecesOfTheModelAndTheirSlots) {
  const std::string start =
      "schema: 1\nname: a\nmodel: {pattern: \"M*-M-\"}\ntraining: {microbatches: 4}\n";
  EXPECT_THAT(run_lockstep("describe " + folder_.file("one.yaml", start)).out,
              Not(HasSubstr("schedule:")));
  const std::string gpipe = folder_.file("gpipe.yaml", start + "parallel: {schedule: gpipe}\n");
  EXPECT_THAT(run_lockstep("describe " + gpipe).out,
              HasSubstr("\nschedule: gpipe\n  piece 0, chunk 0 of stage 0: M*-M-, slots 4\n"));
  const std::string chunks = folder_.file(
      "chunks.yaml", start + "parallel: {chunks: 2, schedule: interleaved, group: 2}\n");
  EXPECT_THAT(run_lockstep("describe " + chunks).out,
              HasSubstr("\nschedule: interleaved, groups of 2 microbatches\n"
                        "  piece 0, chunk 0 of stage 0: M*-, slots 3\n"
                        "  piece 1, chunk 1 of stage 0: M-, slots 1\n"));
  // Activations and gradients both ways; a graph of the step captures all of them.
  const std::string stages = start +
                             "parallel: {pipeline: 2, chunks: 2, schedule: interleaved, group: 2, "
                             "transport: nccl}\ncuda_graph: {impl: ";
  EXPECT_THAT(run_lockstep("describe " + folder_.file("stages.yaml", stages + "none}\n")).out,
              HasSubstr("  transfers: 4 ways from rank to rank, 0 with an NCCL communicator"));
  EXPECT_THAT(
      run_lockstep("describe " + folder_.file("full.yaml", stages + "full_iteration}\n")).out,
      HasSubstr("  transfers: 4 ways from rank to rank, 4 with an NCCL communicator"));
}

TEST_F(CommandLine, DescribesTheRanksThatShareExperts) {
  const std::string start =
      "schema: 1\nname: a\nmodel: {pattern: \"*E\", moe: {experts: 6}}\ncuda_graph: {impl: none}\n"
      "parallel: {data: 4, expert: ";
  EXPECT_THAT(run_lockstep("describe " + folder_.file("one.yaml", start + "1}\n")).out,
              Not(HasSubstr("\nexperts:")));
  EXPECT_THAT(run_lockstep("describe " + folder_.file("two.yaml", start + "2}\n")).out,
              HasSubstr("\nexperts: each layer's 6 lie over 2 ranks\n"
                        "  experts 0 to 2: ranks 0, 2\n"
                        "  experts 3 to 5: ranks 1, 3\n"
                        "  exchange of rows: ranks 0, 1\n"
                        "  exchange of rows: ranks 2, 3\n"
                        "  accumulators of an expert's gradient: 2, one for each source\n"));
}

TEST_F(CommandLine, DescribeNamesABucketThatNothingTakes) {
  const std::string start = "schema: 1\nname: a\ncuda_graph: {max_packed_seqs: ";
  const std::string unused = folder_.file("unused.yaml", start + "[8, 64]}\n");
  EXPECT_THAT(run_lockstep("describe " + unused).out,
              HasSubstr("no graph of capacity 64 is replayed"));
  EXPECT_THAT(run_lockstep("verify --device sim " + unused).out,
              HasSubstr("no graph of capacity 64 is replayed"));
  const std::string used = folder_.file("used.yaml", start + "[3, 5]}\n");
  EXPECT_THAT(run_lockstep("describe " + used).out,
              testing::Not(HasSubstr("no graph of capacity")));
}

TEST_F(CommandLine, DescribeNamesDocumentsThatAreCutShort) {
  const std::string start =
      "schema: 1\nname: a\ndata: {kind: distribution, pack_length: 4096, distribution: {shape: ";
  EXPECT_THAT(run_lockstep("describe " + folder_.file("cut.yaml", start + "measured}}\n")).out,
              HasSubstr("data.distribution.max 32 cuts documents"));
  for (const char* whole : {"measured, max: 4096}}\n", "published}}\n"}) {
    EXPECT_THAT(run_lockstep("describe " + folder_.file("whole.yaml", start + whole)).out,
                testing::Not(HasSubstr("cuts documents")));
  }
}

TEST_F(CommandLine, AWordThatIsNoCommandLeadsToOne) {
  EXPECT_THAT(run_lockstep("mine.yaml").err, HasSubstr("lockstep verify mine.yaml"));
  EXPECT_THAT(run_lockstep("lsAe3C0WDxBgAAq8ZS1RXkAHMYNCm").err,
              HasSubstr("lockstep replay lsAe3C0"));
  EXPECT_THAT(run_lockstep("describe L26").err, HasSubstr("lockstep describe --rules L26"));
  for (const char* word : {"mine.yaml", "describe L26"}) EXPECT_EQ(run_lockstep(word).status, 2);
}

TEST_F(CommandLine, DescribeSaysOfWhichRanksItsBytesAre) {
  const std::string small = folder_.file(
      "small.yaml",
      "schema: 1\nname: a\nparallel: {data: 2}\nfsdp: {strategy: optim_grads_params}\n");
  EXPECT_THAT(
      run_lockstep("describe " + small).out,
      AllOf(HasSubstr("of one unsharded copy\n"),
            HasSubstr("a run takes at least, all 2 ranks together, in one process\n"),
            HasSubstr("a rank has weights, gradients and moments of 0.154 MB after sharding "
                      "by optim_grads_params\n")));
  const std::string large = folder_.file(
      "large.yaml",
      "schema: 1\nname: a\nmodel: {hidden: 8192, vocab: 131072, mlp: {hidden: 65536}}\n"
      "training: {steps: 1000000, microbatches: 100}\n");
  EXPECT_THAT(run_lockstep("describe " + large).out,
              AllOf(HasSubstr("weights, gradients, moments  5"), HasSubstr(" GB\n"),
                    HasSubstr(" years of a core here"), HasSubstr("a run takes at least\n")));
}

TEST_F(CommandLine, DescribeNamesWhatARunCannotMeet) {
  const std::string start = "schema: 1\nname: a\nexpect: {counters: {eager_fallbacks: ";
  const std::string never = folder_.file("never.yaml", start + "{min: 1}}}\n");
  EXPECT_THAT(run_lockstep("describe " + never).out,
              HasSubstr("a run will be violated: expect.counters.eager_fallbacks asks for at "
                        "least 1, and a run counts 0"));
  EXPECT_THAT(run_lockstep("describe " + never).out,
              AllOf(HasSubstr("eager_fallbacks 0 (the file expects at least 1)"),
                    HasSubstr("legality: legal, built, but no run can meet expect.counters")));
  EXPECT_EQ(run_lockstep("verify --quiet --device sim " + never).status, 1);
  const std::string met = folder_.file("met.yaml", start + "0}}\n");
  EXPECT_EQ(run_lockstep("describe " + met).out.find("will be violated"), std::string::npos);
}

TEST_F(CommandLine, PlanPackingRefusesWhatItCannotRead) {
  const std::string bad = folder_.file("packs.txt", "2 5\nnine 4\n");
  EXPECT_EQ(run_lockstep("plan-packing --device sim " + bad).status, 2);
  EXPECT_THAT(run_lockstep("plan-packing --device sim " + bad).err, HasSubstr("packs.txt:2:"));
  EXPECT_EQ(run_lockstep("plan-packing").status, 2);
  EXPECT_EQ(run_lockstep("plan-packing --buckets 9 " + bad).status, 2);
}

TEST_F(CommandLine, EveryCommandSaysAllThatIsWrongInAFile) {
  const std::string bad = folder_.file(
      "two.yaml",
      "schema: 1\nname: two\nmodel: {attention: {heads: 4, kv_heads: 3}}\ntraining: {steps: 1}\n");
  for (const char* command :
       {"verify ", "describe ", "train ", "replay ", "shrink -o x ", "bench ", "plan-packing "}) {
    const Ran ran = run_lockstep(command + bad);
    EXPECT_EQ(ran.status, 2) << command;
    EXPECT_THAT(ran.err, testing::StartsWith("lockstep: refused\n")) << command;
    EXPECT_THAT(ran.err, testing::AllOf(HasSubstr("[L01]"), HasSubstr("[L22]"))) << command;
  }
}

TEST_F(CommandLine, AFailureNamesTheProgramOnce) {
  EXPECT_EQ(run_lockstep("fuzz --count -1").err, "lockstep: --count must be at least 0\n");
  EXPECT_EQ(run_lockstep("shrink -o x").err,
            "lockstep: a word is missing: lockstep shrink TOKEN|FILE -o FILE\n");
}

TEST_F(CommandLine, AnUnknownWordNamesTheNearest) {
  EXPECT_EQ(run_lockstep("").status, 2);
  EXPECT_EQ(run_lockstep("verfy").status, 2);
  EXPECT_THAT(run_lockstep("verfy").err, HasSubstr("nearest: verify"));
  const Ran option = run_lockstep("verify --devise sim");
  EXPECT_EQ(option.status, 2);
  EXPECT_THAT(option.err, HasSubstr("nearest: --device"));
  EXPECT_THAT(run_lockstep("verify -x").err,
              HasSubstr("unknown option -x: options begin with two dashes"));
  EXPECT_THAT(run_lockstep("verify -- -h").err, HasSubstr("-h:1:1: (file): does not exist"));
  EXPECT_THAT(run_lockstep("verify --device cudda").err, HasSubstr("nearest: cuda"));
  EXPECT_THAT(run_lockstep("bench --section steps").err, HasSubstr("nearest: step"));
  EXPECT_THAT(run_lockstep("train --graph partly " + folder_.file("any.yaml", "")).err,
              HasSubstr("nearest: partial"));
  EXPECT_THAT(run_lockstep("verify --plant linear-drops-last-inptu").err,
              HasSubstr("nearest: linear-drops-last-input"));
  EXPECT_EQ(run_lockstep("verify --mutate-oracle nothing-like-it").status, 2);
  EXPECT_EQ(run_lockstep("verify --timeout -1").status, 2);
  EXPECT_EQ(run_lockstep("verify --timeout nan").status, 2);
  EXPECT_EQ(run_lockstep("verify --timeout soon").status, 2);
  EXPECT_EQ(run_lockstep("replay").status, 2);
  EXPECT_EQ(run_lockstep("replay a b").status, 2);
}

TEST_F(CommandLine, FilesThatCannotBeScenariosAreRefusedInPlace) {
  EXPECT_EQ(run_lockstep("verify --device sim /no/such/file.yaml").status, 2);
  EXPECT_THAT(run_lockstep("verify --device sim /no/such/file.yaml").err, HasSubstr("[Y01]"));
  refused("", "Y01", "case.yaml");
  refused(std::string("\x7f\x45\x4c\x46\x00\x01\x02\xff\xfe", 9), "Y01", "case.yaml");
  refused(std::string(kSmall) + "model: {hiden: 32}\n", "Y03", "hidden");
  refused(std::string(kSmall) + "name: twice\n", "Y04", "case.yaml:4");
  refused(std::string(kSmall) + "model: {hidden: wide}\n", "Y05", "hidden");
  refused(std::string(kSmall) + "data: {documents: [[[-1]]]}\n", "Y06", "documents");
  refused(std::string(kSmall) + "data: {documents: [[[65]]]}\n", "L07", "pack_length");
  refused(std::string(kSmall) + "model: {pattern: \"M-\"}\ncuda_graph: {modules: [attn]}\n", "L16",
          "attn");
}

TEST_F(CommandLine, AHundredMegabytesAreRefusedBeforeTheyAreParsed) {
  std::string text = kSmall;
  text.resize(100'000'000, '#');
  refused(text, "Y01", "1 MiB");
}

TEST_F(CommandLine, AnEmptyFolderHoldsNoScenario) {
  std::filesystem::create_directory(folder_ / "empty");
  const Ran ran = run_lockstep("verify --device sim " + (folder_ / "empty"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("no scenario"));
}

TEST_F(CommandLine, WithoutAGpuCudaIsAFailureOfTheWorld) {
  // Hides the GPUs of a machine that has some.
  const std::string file = folder_.file("case.yaml", kSmall);
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const Ran ran = run_lockstep("verify --device cuda " + file);
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("no CUDA device"), HasSubstr("--device sim runs on")));
  // The reports of an earlier run do not stay.
  const std::string json = folder_.file("r.json", "old"), junit = folder_.file("r.xml", "old");
  EXPECT_EQ(run_lockstep("verify --device cuda --skip-code 77 --json " + json + " --junit " +
                         junit + " " + file)
                .status,
            77);
  EXPECT_THAT(slurp(json), HasSubstr("\"verdict\":\"skipped\""));
  EXPECT_THAT(slurp(junit), HasSubstr("<skipped message=\"device: no CUDA device"));
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(CommandLine, AHeldScenarioPrintsATableAndWritesReports) {
  const Ran ran =
      verify(kSmall, "--json " + (folder_ / "r.json") + " --junit " + (folder_ / "r.xml"));
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("small"));
  EXPECT_THAT(ran.out, HasSubstr("1 held, 0 violated"));
  const boost::json::value json = boost::json::parse(slurp(folder_ / "r.json"));
  EXPECT_EQ(json.at("tool").as_string(), "lockstep");
  EXPECT_EQ(json.at("device").at("kind").as_string(), "sim");
  EXPECT_EQ(json.at("summary").at("held").to_number<int>(), 1);
  const boost::json::value& one = json.at("results").at(0);
  EXPECT_EQ(one.at("verdict").as_string(), "holds");
  EXPECT_EQ(one.at("counters").at("graph_replays").to_number<int>(), 16);
  EXPECT_TRUE(one.at("first_difference").is_null());
  EXPECT_THAT(std::string(one.at("replay").as_string()), HasSubstr("lockstep replay ls"));
  EXPECT_THAT(slurp(folder_ / "r.xml"), HasSubstr("tests=\"1\" failures=\"0\""));
}

TEST_F(CommandLine, AReportThatCannotBeWrittenIsAFailureOfTheWorld) {
  const Ran ran = verify(kSmall, "--json /no/such/folder/r.json");
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.err, HasSubstr("/no/such/folder/r.json"));
}

TEST_F(CommandLine, AFileRunsOnceInEachPrecision) {
  const Ran ran =
      verify("schema: 1\nname: both\nnumerics: [fp32, bf16]\n", "--json " + (folder_ / "r.json"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  const boost::json::value json = boost::json::parse(slurp(folder_ / "r.json"));
  EXPECT_EQ(json.at("summary").at("held").to_number<int>(), 2);
}

TEST_F(CommandLine, WhatIsNotBuiltIsRefused) {
  const Ran ran = verify("schema: 1\nname: narrow\nnumerics: [fp32]\nparallel: {tensor: 2}\n");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("[L00]"));
}

TEST_F(CommandLine, ExpectationsHaveTheirSay) {
  EXPECT_EQ(verify(std::string(kSmall) + "expect: {counters: {graph_replays: 16}}\n").status, 0);
  const Ran wrong = verify(std::string(kSmall) + "expect: {counters: {graph_replays: 17}}\n");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.out, HasSubstr("graph_replays is 16, the file expects 17"));
  EXPECT_EQ(verify(std::string(kSmall) + "expect: {verdict: violated}\n").status, 1);
  EXPECT_EQ(verify(std::string(kSmall) + "expect: {verdict: violated, judge: gradient}\n",
                   "--plant linear-weight-gradient-drops-first-row")
                .status,
            0);
  EXPECT_EQ(verify(std::string(kSmall) + "expect: {verdict: refused, error: L07}\n").status, 1);
  const std::string too_long = "data: {documents: [[[65]]]}\nexpect: {verdict: refused, error: ";
  EXPECT_EQ(verify(kSmall + too_long + "L07}\n").status, 0);
  EXPECT_EQ(verify(kSmall + too_long + "L08}\n").status, 1);
  const Ran nothing = verify(std::string(kSmall) + "expect: {verdict: refused}\n");
  EXPECT_EQ(nothing.status, 2);
  EXPECT_THAT(nothing.err, HasSubstr("[L40]"));
}

// The words of the engine's JudgeKind, which scenarios/ cannot see.
TEST_F(CommandLine, AnExpectedJudgeIsOneThatThereIs) {
  const std::string head = std::string(kSmall) + "expect: {verdict: violated, judge: ";
  for (int i = 0; i < static_cast<int>(JudgeKind::status_1); ++i) {
    const std::string word = to_text(static_cast<JudgeKind>(i));
    EXPECT_TRUE(read_scenario_text(head + word + "}\n", "x.yaml").ok()) << word;
  }
  const Ran ran = verify(head + "hazzard}\n");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("hazzard"), HasSubstr("is no judge [Y06]: judges are none, "),
                    HasSubstr("nearest legal: hazard\n")));
}

TEST_F(CommandLine, ACrashIsAVerdict) {
  const Ran ran = verify(kSmall, "--plant harness-test-crash --json " + (folder_ / "r.json"));
  EXPECT_EQ(ran.status, 3);
  EXPECT_THAT(ran.out, HasSubstr("SIGABRT"));
  const boost::json::value json = boost::json::parse(slurp(folder_ / "r.json"));
  EXPECT_EQ(json.at("results").at(0).at("verdict").as_string(), "broken");
  EXPECT_EQ(json.at("results").at(0).at("judge").as_string(), "crash");
}

TEST_F(CommandLine, ABrokenContractIsAViolation) {
  const Ran ran = verify(kSmall, "--plant metadata-shared-by-slots");
  EXPECT_EQ(ran.status, 1) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("violated by contract"));
  EXPECT_THAT(ran.out, HasSubstr("broken contract in"));
  // In which op, and where.
  EXPECT_THAT(ran.out, testing::ContainsRegex(
                           "\\(embedding_[a-z]*, embedding, rank 0, .*step [0-9][0-9]*\\)"));
}

TEST_F(CommandLine, AHangIsAVerdict) {
  const Ran ran = verify(kSmall, "--plant harness-test-hang --timeout 0.5");
  EXPECT_EQ(ran.status, 4);
  EXPECT_THAT(ran.out, HasSubstr("watchdog"));
}

TEST_F(CommandLine, ABadTokenIsABadRequest) {
  for (const char* token : {"ls", "lsAAAA", "lsAQAAAAAAAAAA", "ls!!!!"}) {
    EXPECT_EQ(run_lockstep(std::string("replay --device sim '") + token + "'").status, 2) << token;
  }
}

TEST_F(CommandLine, TheOrderOfARunIsOfOneRun) {
  const std::string trace = folder_ / "trace.json";
  const Ran one = run_lockstep("replay --device sim --schedule --trace " + trace + " " +
                               folder_.file("a.yaml", kSmall));
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("compute"));
  EXPECT_GT(boost::json::parse(slurp(trace)).at("traceEvents").as_array().size(), 100u);
  const std::string both =
      folder_.file("b.yaml", "schema: 1\nname: both\nnumerics: [fp32, bf16]\n");
  const Ran two = run_lockstep("replay --device sim --schedule " + both);
  EXPECT_EQ(two.status, 2);
  EXPECT_EQ(two.out, "");  // Nothing has run.
}

TEST_F(CommandLine, DescribeNeedsNoDevice) {
  const Ran ran = run_lockstep("describe " + folder_.file("case.yaml", kSmall));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("2 regions"));
  EXPECT_THAT(ran.out, HasSubstr("layers.0.in_proj.weight"));
  EXPECT_THAT(ran.out, HasSubstr("graph_replays 16"));
  EXPECT_THAT(run_lockstep("describe --built").out, HasSubstr("numerics: fp32"));
  const Ran unbuilt =
      run_lockstep("describe " + folder_.file("tensor.yaml",
                                              "schema: 1\nname: a\nnumerics: [fp32]\n"
                                              "model: {pattern: \"ME\"}\nparallel: {tensor: 2}\n"));
  EXPECT_EQ(unbuilt.status, 2);
  EXPECT_THAT(unbuilt.out, HasSubstr("layers.0.in_proj.weight"));
  EXPECT_THAT(unbuilt.err, HasSubstr("[L00]"));
}

TEST_F(CommandLine, DescribeWritesWhatItSays) {
  const std::string report = folder_ / "d.json";
  const auto described = [&](const std::string& rest) {
    run_lockstep("describe --quiet --json " + report + " " +
                 folder_.file("case.yaml", kSmall + rest));
    return boost::json::parse(slurp(report));
  };
  const boost::json::value built = described("");
  EXPECT_TRUE(built.at("legal").as_bool() && built.at("built").as_bool());
  EXPECT_EQ(built.at("scenario").at("training").at("in_flight").to_number<int>(), 2);
  EXPECT_EQ(built.at("expected_counters").at("fp32").at("graph_replays").at("max").to_number<int>(),
            16);
  EXPECT_EQ(built.at("parameters").as_array().size(), 18u);
  const boost::json::value long_run =
      described("training: {steps: 1000000, microbatches: 1024}\nparallel: {data: 64}\n");
  EXPECT_TRUE(long_run.at("built").as_bool());
  EXPECT_FALSE(long_run.as_object().contains("expected_counters"));
  const boost::json::value unbuilt = described("parallel: {tensor: 2}\n");
  EXPECT_TRUE(unbuilt.at("legal").as_bool() && !unbuilt.at("built").as_bool());
  EXPECT_EQ(unbuilt.at("errors").at(0).at("rule").as_string(), "L00");
  const boost::json::value refused = described("model: {hidden: 0}\n");
  EXPECT_FALSE(refused.at("legal").as_bool());
  EXPECT_EQ(refused.at("errors").at(0).at("line").to_number<int>(), 4);
}

TEST_F(CommandLine, TrainingWritesItsReports) {
  const std::string json = folder_ / "t.json", junit = folder_ / "t.xml";
  const Ran ran = run_lockstep(
      "train --quiet --device sim --json " + json + " --junit " + junit + " " +
      folder_.file("case.yaml", std::string(kSmall) + "parallel: {data: 2, transport: shm}\n"));
  ASSERT_EQ(ran.status, 0) << ran.err;
  const boost::json::value run = boost::json::parse(slurp(json));
  EXPECT_EQ(run.at("summary").at("held").to_number<int>(), 1);
  EXPECT_EQ(run.at("training").at("steps").as_array().size(), 3u);
  EXPECT_THAT(ran.out,
              HasSubstr("weights " + std::string(run.at("training").at("weights").as_string())));
  EXPECT_GT(run.at("results").at(0).at("counters").at("graph_replays").to_number<int>(), 0);
  EXPECT_THAT(slurp(junit), HasSubstr("tests=\"1\" failures=\"0\""));
}

TEST_F(CommandLine, DoctorSaysWhatCanRun) {
  const Ran ran = run_lockstep("doctor --json " + (folder_ / "d.json"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("--device sim  can run"));
  EXPECT_THAT(ran.out, HasSubstr("MPS           "));
  EXPECT_EQ(boost::json::parse(slurp(folder_ / "d.json")).at("sim").at("kind").as_string(), "sim");
}

TEST_F(CommandLine, DoctorHoldsTensorCoresAgainstTheModel) {
  const std::string json = folder_ / "d.json";
  const Ran ran = run_lockstep("doctor --device sim --calibrate --dots 50000 --json " + json);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("sums of 288 products, 0 differ from the model"));
  const boost::json::value found = boost::json::parse(slurp(json));
  EXPECT_EQ(found.at("calibration").at("differences").to_number<int>(), 0);
  EXPECT_EQ(found.at("fp8_calibration").at("differences").to_number<int>(), 0);
  EXPECT_GE(found.at("fp8_calibration").at("sums").to_number<int>(), 50'000 / 18);
}

TEST_F(CommandLine, TrainingByEngineAndByOracleEndsInEqualWeights) {
  const std::string file = folder_.file("case.yaml", kSmall);
  const auto digests = [](const Ran& ran) { return ran.out.substr(0, ran.out.rfind("loss ")); };
  const Ran engine = run_lockstep("train --device sim --steps 4 --digest-every 1 " + file);
  EXPECT_EQ(engine.status, 0) << engine.err;
  EXPECT_THAT(engine.out, HasSubstr("step 4"));
  EXPECT_THAT(engine.out, HasSubstr("unigram entropy"));
  EXPECT_EQ(digests(run_lockstep("train --oracle --steps 4 --digest-every 1 " + file)),
            digests(engine));
  EXPECT_EQ(
      digests(run_lockstep("train --device sim --graph none --steps 4 --digest-every 1 " + file)),
      digests(engine));
}

TEST_F(CommandLine, AResumedTrainingIsTheOneThatWasNeverInterrupted) {
  const std::string file = folder_.file("case.yaml", kSmall);
  const auto last = [](const Ran& ran) { return ran.out.substr(ran.out.find("step 4")); };
  const Ran whole = run_lockstep("train --device sim --steps 4 " + file);
  const std::string checkpoint = folder_ / "state.safetensors";
  EXPECT_EQ(
      run_lockstep("train --device sim --steps 2 --checkpoint " + checkpoint + " " + file).status,
      0);
  const Ran rest = run_lockstep("train --device sim --steps 4 --resume " + checkpoint + " " + file);
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(last(rest), last(whole));
  EXPECT_EQ(run_lockstep("train --device sim --steps 4 --resume /no/such " + file).status, 3);
  const Ran early = run_lockstep("train --device sim --checkpoint /no/such/state " + file);
  EXPECT_EQ(early.status, 3);
  EXPECT_EQ(early.err,
            "lockstep: /no/such/state: cannot be written there: No such file or directory\n");
  // Ended before its first replay, with the file's decay, whose end is where the file's steps end.
  const std::string decays =
      folder_.file("decays.yaml",
                   std::string(kSmall) +
                       "training: {steps: 4, change_microbatches_at: [{step: 2, microbatches: 3}], "
                       "optimizer: {schedule: cosine}}\n");
  ASSERT_EQ(
      run_lockstep("train --device sim --steps 1 --checkpoint " + checkpoint + " " + decays).status,
      0);
  const Ran on = run_lockstep("train --device sim --resume " + checkpoint + " " + decays);
  ASSERT_EQ(on.status, 0) << on.err;
  EXPECT_EQ(last(on), last(run_lockstep("train --device sim " + decays)));
  const Ran nowhere = run_lockstep("train --device sim --checkpoint-within 1 " + file);
  EXPECT_EQ(nowhere.status, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--checkpoint-within needs --checkpoint"));
}

// What is not compared must not look as if it had been.
TEST_F(CommandLine, AScenarioWhoseCostsAreNotComparedIsTold) {
  const std::string file = folder_.file("case.yaml", kSmall),
                    told = "blind: costs are not compared";
  EXPECT_THAT(run_lockstep("verify --device sim " + file).out, Not(HasSubstr(told)));
  ASSERT_EQ(run_lockstep("verify --device sim --update-costs " + file).status, 0);
  EXPECT_THAT(run_lockstep("verify --device sim " + file).out, Not(HasSubstr(told)));
  folder_.file("case.yaml", kSmall + std::string("training: {steps: 2}\n"));
  const Ran edited = run_lockstep("verify --device sim " + file);
  EXPECT_EQ(edited.status, 0) << edited.out;
  EXPECT_THAT(edited.out, HasSubstr(told + ": the scenario was edited since"));
  const std::string other = folder_.file(
      "other.yaml", "schema: 1\nname: other\nnumerics: [fp32]\ntraining: {steps: 4}\n");
  EXPECT_THAT(run_lockstep("verify --device sim " + other).out,
              HasSubstr(told + ": the scenario has no row in"));
}

}  // namespace
}  // namespace lockstep
