// The command line at its edges: words longer than file names, tokens of other folders, a parent
// that dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <boost/json.hpp>
#include <filesystem>

#include "tests/support/program.h"
#include "tests/support/started.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string token_in(const std::string& json) {
  return boost::json::parse(slurp(json)).at("results").at(0).at("token").as_string().c_str();
}

TEST(CommandLineEdges, ATokenLongerThanAFileNameIsReplayedAndShrunk) {
  const TemporaryFolder folder;
  std::string documents;
  for (int i = 0; i < 200; ++i)
    documents += (i ? ", [[" : "[[") + std::to_string(1 + (i * i * 29 + i * i * i) % 61) + "]]";
  const std::string file =
      folder.file("long.yaml", "schema: 1\nname: long\ndata: {documents: [" + documents +
                                   "]}\nmodel: {pattern: \"-\", hidden: 3, vocab: 7}\n"
                                   "training: {seed: 1234567890123, steps: 2}\n"
                                   "cuda_graph: {impl: none}\n");
  const std::string report = folder / "report.json";
  ASSERT_EQ(run_lockstep("verify --device sim --json " + report + " " + file).status, 0);
  const std::string token = token_in(report);
  ASSERT_GT(token.size(), 255u);
  const Ran replay = run_lockstep("replay --device sim " + token);
  EXPECT_EQ(replay.status, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("long (fp32) holds"));
  const Ran shrunk =
      run_lockstep("shrink --device sim --budget 1 -o " + (folder / "small.yaml") + " " + token);
  EXPECT_EQ(shrunk.status, 2);
  EXPECT_THAT(shrunk.err, HasSubstr("nothing to shrink: long holds on sim"));
}

// The seed behind the last one is 0.
TEST(CommandLineEdges, FoldersOfToolsAreNotWalked) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / ".github/workflows");
  folder.file(".github/workflows/ci.yaml", "on: push\n");
  EXPECT_EQ(run_lockstep("verify --quiet --device sim " + (folder / "")).status, 2);  // Nothing.
  folder.file("a.yaml", "schema: 1\nname: a\nnumerics: [fp32]\n");
  EXPECT_EQ(run_lockstep("verify --quiet --device sim " + (folder / "")).status, 0);
}

TEST(CommandLineEdges, ATokenOfTheLastSeedsIsReplayed) {
  const TemporaryFolder folder;
  const std::string file = folder.file("seeds.yaml",
                                       "schema: 1\nname: seeds\nmodel: {pattern: \"-\"}\n"
                                       "checker: {schedule: {count: 3, seed: 9007199254740991}}\n"
                                       "expect: {counters: {graph_replays: 3}}\n");
  const std::string report = folder / "report.json";
  ASSERT_EQ(run_lockstep("verify --device sim --json " + report + " " + file).status, 1);
  const Ran replay = run_lockstep("replay --device sim " + token_in(report));
  EXPECT_EQ(replay.status, 1) << replay.err;
  EXPECT_THAT(replay.out + replay.err, HasSubstr("the file expects 3"));
}

TEST(CommandLineEdges, RanksMaySeeTheSameFewTexts) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "texts");
  folder.file("texts/one.txt", "Some words, more of them than sixteen letters.");
  const std::string file =
      folder.file("same.yaml",
                  "schema: 1\nname: same\nmodel: {pattern: \"-\"}\nparallel: {data: 2}\n"
                  "data: {kind: text, path: texts}\n");
  const std::string report = folder / "report.json";
  ASSERT_EQ(run_lockstep("verify --device sim --json " + report + " " + file).status, 0);
  EXPECT_THAT(slurp(report), HasSubstr("ranks 0 and 1 see the same documents"));
}

// A fault that met no place shows nothing of the judges: that is no pass.
TEST(CommandLineEdges, AFaultThatMeetsNoPlaceIsVacuous) {
  const std::string file = root_path() + "/ci/planted.yaml";
  for (const char* const fault :
       {"expert-layout-capacity-less-one", "drop-wait/eager/compute/wait-for-loader/99"}) {
    for (const char* const command : {"verify", "replay"}) {
      const Ran ran =
          run_lockstep(std::string(command) + " --device sim --plant " + fault + " " + file);
      EXPECT_EQ(ran.status, 1) << command << ran.err;
      EXPECT_THAT(ran.out, HasSubstr("violated by vacuous: the planted fault " +
                                     std::string(fault) + " met no place in this scenario"));
    }
  }
  const Ran met = run_lockstep("verify --device sim --plant rms-norm-forgets-eps " + file);
  EXPECT_EQ(met.status, 1);
  EXPECT_THAT(met.out, Not(HasSubstr("met no place")));
}

// A fault that was met and that nothing caught must not look like a clean pass.
TEST(CommandLineEdges, AFaultThatWasMetAndNotCaughtIsSaid) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("mine.yaml", "schema: 1\nname: mine\ntraining: {in_flight: 1}\n");
  const std::string page = folder / "page.html", json = folder / "report.json",
                    plant = " --device sim --plant metadata-shared-by-slots " + file + " --html " +
                            page + " --json " + json;
  for (const char* const command : {"verify", "replay"}) {
    const Ran ran = run_lockstep(command + plant);
    EXPECT_EQ(ran.status, 0) << command << ran.err;
    const testing::Matcher<std::string> said =
        AllOf(HasSubstr("planted metadata-shared-by-slots: met "),
              HasSubstr("not caught by this scenario"));
    EXPECT_THAT(ran.out, said);
    EXPECT_THAT(slurp(page), said);
    EXPECT_THAT(slurp(json), AllOf(said, HasSubstr("\"uncaught\"")));
  }
  const Ran caught = run_lockstep("verify --device sim --plant rms-norm-forgets-eps " + file);
  EXPECT_THAT(caught.out, Not(HasSubstr("not caught")));
}

TEST(CommandLineEdges, AHangIsReportedWithItsTimeAndItsFile) {
  const TemporaryFolder folder;
  const std::string report = folder / "report.json", file = root_path() + "/ci/planted.yaml";
  const Ran ran = run_lockstep("verify --device sim --timeout 1 --plant harness-test-hang --json " +
                               report + " " + file);
  EXPECT_EQ(ran.status, 4) << ran.out << ran.err;
  const auto result = boost::json::parse(slurp(report)).at("results").at(0);
  EXPECT_EQ(result.at("seconds").to_number<double>(), 1);
  EXPECT_EQ(result.at("file").as_string(), file);
}

TEST(CommandLineEdges, TrainSaysWhichOfSeveralNumericsItTakes) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("two.yaml", "schema: 1\nname: two\nnumerics: [bf16, fp32]\n");
  const Ran ran = run_lockstep("train --device sim " + file);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("lists several numerics: trains in "));
  EXPECT_EQ(run_lockstep("train --device sim --quiet " + file).err.find("lists several"),
            std::string::npos);
}

TEST(CommandLineEdges, AWordThatIsTooLongForAPathIsABadRequest) {
  const std::string word(5000, 'a');
  EXPECT_EQ(run_lockstep("verify --device sim " + word).status, 2);
  EXPECT_EQ(run_lockstep("replay --device sim " + word).status, 2);
  EXPECT_EQ(run_lockstep("replay --device sim ls" + word).status, 2);
}

TEST(CommandLineEdges, AScenarioThatIsTooLargeForATokenIsABadRequest) {
  const TemporaryFolder folder;
  std::string text = "schema: 1\nname: big\ndata: {pack_length: 1048576, documents: [[[2";
  while (text.size() < (1 << 20) - 100) text += ",1";
  const Ran ran = run_lockstep("verify --device sim " + folder.file("big.yaml", text + "]]]}\n"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("bytes, over 1048576 [Y01]"));
}

// The line is pasted where the person is, which is not where the scenario lies.
TEST(CommandLineEdges, TheReplayLineFindsTheDocuments) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "it's here/texts");
  folder.file("it's here/texts/a.txt", "To be, or not to be, that is the question.");
  folder.file("it's here/case.yaml", "schema: 1\nname: texts\ndata: {kind: text, path: texts}\n");
  const std::string report = folder / "report.json";
  ASSERT_EQ(run_lockstep("verify --device sim --json " + report + " \"" +
                         (folder / "it's here/case.yaml\""))
                .status,
            0);
  const boost::json::value result = boost::json::parse(slurp(report)).at("results").at(0);
  const std::string line = result.at("replay").as_string().c_str();
  ASSERT_EQ(line.rfind("lockstep replay ", 0), 0u);
  const Ran replay = run_lockstep(line.substr(9));
  EXPECT_EQ(replay.status, 0) << replay.err;
  EXPECT_EQ(run_lockstep("replay " + token_in(report)).status, 2)
      << "a token alone looks in the working folder";
}

// Every training pack holds two documents and falls back; the last pack, kept for evaluation, holds
// one and replays.
TEST(CommandLineEdges, AnEvaluationThatReplaysIsNoTrainingThatDid) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "texts");
  for (const char* name : {"texts/a", "texts/b", "texts/c", "texts/d"})
    folder.file(name, "0123456789");
  folder.file("texts/z", "01234567890123456789");
  const std::string file =
      folder.file("case.yaml",
                  "schema: 1\nname: vacuous\ndata: {kind: text, path: texts, pack_length: 20}\n"
                  "cuda_graph: {max_packed_seqs: 1, impl: full_iteration}\n"
                  "training: {microbatches: 1, eval_every: 1}\n");
  const Ran ran = run_lockstep("verify --device sim " + file);
  EXPECT_EQ(ran.status, 1);
  EXPECT_THAT(ran.out, HasSubstr("violated by vacuous"));
}

TEST(CommandLineEdges, ACheckpointContinuesItsOwnRunOnly) {
  const TemporaryFolder folder;
  const std::string small = "schema: 1\nname: small\nmodel: {pattern: \"-\", dropout: ";
  const std::string file = folder.file("one.yaml", small + "0.1}\n"),
                    other = folder.file("other.yaml", small + "0.2}\n");
  const std::string checkpoint = folder / "state";
  ASSERT_EQ(
      run_lockstep("train --device sim --steps 3 --checkpoint " + checkpoint + " " + file).status,
      0);
  const std::string resume = "train --device sim --steps 4 --resume " + checkpoint + " ";
  EXPECT_EQ(run_lockstep(resume + file).status, 0);
  EXPECT_EQ(run_lockstep(resume + "--graph full_iteration " + file).status, 0);
  const Ran refused = run_lockstep(resume + other);
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.err, HasSubstr("a checkpoint of another run"));
}

// Other documents, or another decay that is not over, are another run; the place of the documents
// is not.
TEST(CommandLineEdges, ACheckpointIsOfItsDocumentsAndItsDecay) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "moved"}) std::filesystem::create_directory(folder / name);
  folder.file("a/text", "To be, or not to be, that is the question.");
  folder.file("moved/text", "To be, or not to be, that is the question.");
  folder.file("b/text", "Whether 'tis nobler in the mind to suffer, or so.");
  const auto scenario = [&](const std::string& path, const std::string& decay) {
    return folder.file(
        path + ".yaml",
        "schema: 1\nname: texts\nmodel: {pattern: \"-\"}\ndata: {kind: text, path: " + path +
            "}\ntraining: {steps: 4, optimizer: {schedule: cosine" + decay + "}}\n");
  };
  const std::string checkpoint = folder / "state",
                    resume = "train --device sim --quiet --resume " + checkpoint + " ";
  ASSERT_EQ(run_lockstep("train --device sim --steps 2 --checkpoint " + checkpoint + " " +
                         scenario("a", ""))
                .status,
            0);
  EXPECT_EQ(run_lockstep(resume + scenario("moved", "")).status, 0);
  EXPECT_EQ(run_lockstep(resume + scenario("b", "")).status, 3);
  EXPECT_EQ(run_lockstep(resume + scenario("a", ", decay_steps: 8")).status, 3);
}

TEST(CommandLineEdges, WhatDescribeWritesIsAScenario) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("case.yaml", "schema: 1\nname: ratios\nmodel: {dropout: 0.1}\n");
  ASSERT_EQ(run_lockstep("describe --json " + (folder / "report.json") + " " + file).status, 0);
  const std::string report = slurp(folder / "report.json");
  const std::size_t begin = report.find("\"scenario\":") + 11;
  const std::string scenario = report.substr(begin, report.rfind('}') - begin);
  EXPECT_EQ(boost::json::parse(report).at("scenario"), boost::json::parse(scenario));
  EXPECT_EQ(run_lockstep("describe " + folder.file("again.yaml", scenario)).status, 0);
}

TEST(CommandLineEdges, AnExpectedRefusalMayBeOfASecondDocument) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("two.yaml",
                  "schema: 1\nname: two\nexpect: {verdict: refused, error: Y01}\n---\n"
                  "schema: 1\nname: other\n");
  EXPECT_EQ(run_lockstep("verify --device sim " + file).status, 0);
  EXPECT_THAT(run_lockstep("describe " + file).err,
              HasSubstr("two.yaml:4:1: (file): has more than one document [Y01]"));
}

// A run of a whole step falls back until step 2: there is nothing yet that could be captured again.
TEST(CommandLineEdges, ARecaptureOfNothingIsVacuous) {
  const TemporaryFolder folder;
  const std::string text =
      "schema: 1\nname: late\nmodel: {pattern: \"-\"}\ntraining: {steps: 4, recapture_at: [STEP]}\n"
      "data: {documents: [[[2]], [[2, 2]], [[2]], [[2]]]}\ncuda_graph: {impl: full_iteration, "
      "max_packed_seqs: 1}\n";
  const auto at = [&](const std::string& step) {
    std::string file = text;
    return run_lockstep("verify --device sim " +
                        folder.file("late.yaml", file.replace(file.find("STEP"), 4, step)));
  };
  const Ran early = at("2");
  EXPECT_EQ(early.status, 1);
  EXPECT_THAT(early.out, HasSubstr("recaptures is 0, expected 1"));
  EXPECT_EQ(at("3").status, 0);
}

TEST(CommandLineEdges, WhatIsNoRequestIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const std::string file =
      folder.file("case.yaml", "schema: 1\nname: small\nmodel: {pattern: \"-\"}\n");
  for (const char* words :
       {"verify --device sim --plant ''", "fuzz --device sim --count 1 --log ''",
        "train --device sim --checkpoint ''", "shrink --device sim -o ''",
        "train --device sim --steps 1000001"}) {
    EXPECT_EQ(run_lockstep(std::string(words) + " " + file).status, 2) << words;
  }
  for (const char* port : {"localhost:70000", "localhost:0", "localhost:x", "localhost:"}) {
    const Ran ran = run_lockstep("train --device sim --meeting " + std::string(port) + " " + file);
    EXPECT_EQ(ran.status, 2) << port;
    EXPECT_THAT(ran.err, HasSubstr("with a port of 1 to 65535"));
  }
  EXPECT_EQ(run_lockstep("train --device sim --checkpoint " + (folder / "") + " " + file).err,
            "lockstep: " + (folder / "") + ": cannot be written there: Is a directory\n");
  const Ran nowhere =
      run_lockstep("shrink --device sim --plant rms-norm-forgets-eps -o /no/such/file " + file);
  EXPECT_EQ(nowhere.status, 3);
  EXPECT_THAT(nowhere.err, HasSubstr("cannot be written there"));
}

TEST(CommandLineEdges, WhatIsNotBuiltIsRefusedInItsLine) {
  const TemporaryFolder folder;
  const std::string file = folder.file(
      "own.yaml",
      "schema: 1\nname: own\nnumerics: [fp32]\nfsdp: {strategy: optim, nccl_ub: true}\n");
  const Ran ran = run_lockstep("verify --device sim " + file);
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("own.yaml:4:34: fsdp.nccl_ub: not built yet: fsdp.nccl_ub [L00]"));
}

TEST(CommandLineEdges, MoreWorkersThanAMachineCanHaveAreRefused) {
  const Ran ran = run_lockstep("fuzz --device sim --count 1 --jobs 100000");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("--jobs must be at most 1024"));
}

TEST(CommandLineEdges, EveryCommandTellsItsVersion) {
  for (const char* command : {"verify", "replay", "train", "bench", "describe", "doctor"}) {
    const Ran ran = run_lockstep(std::string(command) + " --version");
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_EQ(ran.out, run_lockstep("--version").out) << command;
  }
}

TEST(CommandLineEdges, AWorkerDiesWithItsParent) {
  const TemporaryFolder folder;
  const std::string file = folder.file("case.yaml", "schema: 1\nname: hangs\n");
  Started command("verify --device sim --quiet --plant harness-test-hang " + file, 0,
                  folder / "out");
  ASSERT_TRUE(comes_true([&] { return !children_of(command.pid()).empty(); }));
  const std::vector<pid_t> workers = children_of(command.pid());
  pause_ms(100);
  ASSERT_EQ(::kill(command.pid(), SIGKILL), 0);
  for (const pid_t worker : workers)
    EXPECT_TRUE(comes_true([&] { return !lives(worker); })) << worker;
}

}  // namespace
}  // namespace lockstep
