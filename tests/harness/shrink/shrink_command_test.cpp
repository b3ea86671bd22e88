// The command `shrink`: what it writes, refuses and leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "harness/shrink/shrink.h"
#include "scenarios/io/reader.h"
#include "tests/harness/shrink/shrink_case.h"
#include "tests/support/program.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class ShrinkCommand : public testing::Test {
 protected:
  TemporaryFolder folder_;
  const std::string file_ = folder_.file("case.yaml", "schema: 1\nname: case\nnumerics: [fp32]\n");
  const std::string planted_ = " --device sim --plant rms-norm-forgets-eps ";
};

TEST_F(ShrinkCommand, WritesAFileThatFailsAlikeAndPromotesIt) {
  std::filesystem::create_directories(folder_ / "scenarios/library");
  std::filesystem::create_directories(folder_ / "scenarios/regressions");
  ::setenv("LOCKSTEP_LIBRARY", (folder_ / "scenarios/library").c_str(), 1);
  const std::string out = folder_ / "small.yaml";
  const Ran first = run_lockstep("shrink " + file_ + planted_ + "--promote -o " + out);
  const Ran second = run_lockstep("shrink " + file_ + planted_ + "--promote");
  ::unsetenv("LOCKSTEP_LIBRARY");
  ASSERT_EQ(first.status, 0) << first.out << first.err;
  ASSERT_EQ(second.status, 0) << second.out << second.err;
  EXPECT_THAT(first.out, HasSubstr("This folder is of no checkout: copy the file"));
  EXPECT_THAT(first.out, HasSubstr("  first op  rms_norm_forward, "));
  const std::string promoted = folder_ / "scenarios/regressions/activation-norm-out.yaml";
  EXPECT_EQ(slurp(promoted), slurp(out));
  EXPECT_TRUE(
      std::filesystem::exists(folder_ / "scenarios/regressions/activation-norm-out-2.yaml"));
  EXPECT_THAT(slurp(out), HasSubstr("# replay: lockstep replay ls"));
  EXPECT_EQ(run_lockstep("verify --quiet --device sim " + promoted).status, 0);
  const Ran again = run_lockstep("replay" + planted_ + out);
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(first.out,
              HasSubstr(again.out));  // The same block: tensor, element, bits and replay line.
}

// A hazard has no first difference, and may have an op that was left out.
TEST_F(ShrinkCommand, NamesTheOpThatWasLeftOutAsAReplayDoes) {
  const std::string skipped = folder_.file(
      "skipped.yaml",
      "schema: 1\nname: skipped\nnumerics: [fp32]\nmodel: {pattern: '--', hidden: 1, vocab: 2, "
      "mlp: {hidden: 1}}\ndata: {pack_length: 2, documents: [[[2]]]}\ntraining: {steps: 1, "
      "microbatches: 1}\ncuda_graph: {warmup_steps: 0, max_packed_seqs: 1, capture_passes: 2}\n");
  const std::string out = folder_ / "small.yaml",
                    planted = " --device sim --plant replay-skipped-once ";
  const Ran ran = run_lockstep("shrink " + skipped + planted + "-o " + out);
  ASSERT_EQ(ran.status, 0) << ran.out << ran.err;
  const Ran again = run_lockstep("replay" + planted + out);
  EXPECT_THAT(again.out, HasSubstr("violated by hazard: use before write: "));
  EXPECT_THAT(again.out, HasSubstr("\n  left out  linear_weight_gradient, layer 0, "));
  EXPECT_THAT(ran.out, HasSubstr(again.out));
}

TEST_F(ShrinkCommand, RefusesWhatDoesNotFail) {
  const Ran ran = run_lockstep("shrink --device sim " + file_ + " -o " + (folder_ / "small.yaml"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("nothing to shrink"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "small.yaml"));
  EXPECT_EQ(run_lockstep("shrink --device sim " + file_).status, 2);
}

// A campaign writes such comments into what it keeps.
TEST_F(ShrinkCommand, NamesTheOptionsWithWhichAFileFailed) {
  const std::string kept =
      folder_.file("kept.yaml",
                   "# Found by lockstep fuzz.\n# lockstep replay lsABC --device sim --plant "
                   "rms-norm-forgets-eps\n" +
                       slurp(file_));
  const std::string small = " -o " + (folder_ / "small.yaml");
  const Ran ran = run_lockstep("shrink --device sim " + kept + small);
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.err, HasSubstr("nothing to shrink: case holds on sim; the file says it failed "
                                 "with: --device sim --plant rms-norm-forgets-eps\n"));
  EXPECT_EQ(run_lockstep("shrink " + kept + planted_ + small).status, 0);
}

// A program that is installed elsewhere leaves its own tree as it is.
TEST_F(ShrinkCommand, PromotesIntoTheCheckoutAtHand) {
  std::filesystem::create_directories(folder_ / "here/scenarios/regressions");
  folder_.file("here/CMakeLists.txt", "");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_ / "here");
  const Ran ran = run_lockstep("shrink " + file_ + planted_ + "--promote");
  std::filesystem::current_path(before);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("wrote scenarios/regressions/activation-norm-out.yaml\n"));
  EXPECT_THAT(ran.out, HasSubstr("commit it"));
  EXPECT_TRUE(
      std::filesystem::exists(folder_ / "here/scenarios/regressions/activation-norm-out.yaml"));
}

// The failure says it once; each of the runs that die of it would too.
TEST_F(ShrinkCommand, IsQuietAboutRunsThatDie) {
  const std::string text =
      "schema: 1\nname: dies\nnumerics: [fp32]\ndata: {documents: [[[3, 2]]]}\n"
      "cuda_graph: {max_packed_seqs: [1, 2], warmup_steps: 0}\n";
  const Ran ran = run_lockstep("shrink --quiet --device sim --plant capacity-off-by-one " +
                               folder_.file("dies.yaml", text) + " -o " + (folder_ / "small.yaml"));
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_THAT(
      ran.out,
      HasSubstr("violated by contract: the worker was killed by SIGABRT: broken contract in "));
  EXPECT_EQ(ran.err, "");
}

TEST_F(ShrinkCommand, LeavesNothingBehindWhereItCannotWrite) {
  const Ran ran = run_lockstep("shrink " + file_ + planted_ + "--runs 20 -o " +
                               (folder_ / "absent/small.yaml"));
  EXPECT_EQ(ran.status, 3) << ran.out << ran.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "absent"));
}

// Neither the working folder nor that of the result is where the bytes lie.
TEST_F(ShrinkCommand, FindsTheBytesOfAText) {
  std::filesystem::create_directories(folder_ / "from/texts");
  std::filesystem::create_directories(folder_ / "to");
  folder_.file("from/texts/a.txt", "To be, or not to be, that is the question.");
  const std::string file =
      folder_.file("from/case.yaml",
                   "schema: 1\nname: case\nnumerics: [fp32]\ndata: {kind: text, path: texts}\n");
  const std::string kept = folder_ / "to/kept.yaml", small = folder_ / "to/small.yaml",
                    json = folder_ / "r.json";
  EXPECT_EQ(run_lockstep("shrink " + file + planted_ + "--runs 1 -o " + kept).status,
            5);  // The text as it is.
  const ReadResult read = read_scenario_file(kept);
  ASSERT_TRUE(read.ok()) << text_of(read.errors);
  EXPECT_EQ(read.scenario.data.path, "../from/texts");
  EXPECT_EQ(run_lockstep("verify --quiet" + planted_ + "--json " + json + " " + kept).status, 1);
  const std::string token =
      boost::json::parse(slurp(json)).at("results").at(0).at("token").as_string().c_str();
  const Ran ran = run_lockstep("shrink " + token + planted_ + "--data-from " + (folder_ / "to") +
                               " -o " + small);
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_EQ(run_lockstep("verify --quiet" + planted_ + small).status, 1);
}

TEST_F(ShrinkCommand, SaysThatTheBudgetEndedFirst) {
  const Ran ran =
      run_lockstep("shrink " + file_ + planted_ + "--runs 20 -o " + (folder_ / "small.yaml"));
  EXPECT_EQ(ran.status, 5) << ran.out << ran.err;
  EXPECT_TRUE(read_scenario_file(folder_ / "small.yaml").ok());
}

}  // namespace
}  // namespace lockstep
