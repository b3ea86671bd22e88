// Campaigns that leave the process: `lockstep fuzz --with processes,cudnn` on the simulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/generate/case.h"
#include "scenarios/io/reader.h"
#include "tests/harness/campaign/campaign_run.h"

namespace lockstep {
namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;

json::value report_in(const std::string& path) { return json::parse(slurp(path)); }

TEST_F(Campaign, ReachesProcessesAndCudnn) {
  const std::string report = folder_ / "report.json";
  const Ran ran = fuzz("--seed 5 --count 12 --jobs 2 --with processes,cudnn --json " + report);
  EXPECT_EQ(ran.status, 0) << ran.err << ran.out;
  const json::value told = report_in(report);
  const auto cases = [&](const char* name) { return told.at("with").at(name).to_number<int>(); };
  EXPECT_EQ(told.at("campaign").at("with"), "processes,cudnn");
  EXPECT_EQ(cases("processes") + told.at("summary").at("near_legal").to_number<int>(), 12);
  EXPECT_GT(cases("cudnn"), 2);
  EXPECT_THAT(ran.out,
              HasSubstr("with processes: " + std::to_string(cases("processes")) + " cases"));
  EXPECT_THAT(ran.out, HasSubstr("with cudnn: " + std::to_string(cases("cudnn")) + " cases"));
}

TEST_F(Campaign, TellsWhatCasesInFp8Had) {
  const std::string report = folder_ / "report.json";
  const Ran ran = fuzz("--seed 5 --count 30 --jobs 2 --with fp8 --coverage --json " + report);
  EXPECT_EQ(ran.status, 0) << ran.err << ran.out;
  const json::value told = report_in(report);
  const json::object& met = told.at("in_fp8").as_object();
  const auto count = [&](const char* name) { return met.at(name).to_number<int>(); };
  const int cases = told.at("with").at("fp8").to_number<int>();
  EXPECT_THAT(ran.out, HasSubstr("in fp8, of " + std::to_string(cases) + " cases"));
  EXPECT_EQ(count("current exponents") + count("delayed exponents"), cases);
  EXPECT_EQ(count("cached fp8 weights") + count("uncached fp8 weights"), cases);
  EXPECT_TRUE(met.contains("capped exponents") && met.contains("input of attn_proj saved in fp8"));
  EXPECT_TRUE(met.contains("offload") && !met.contains("bf16"));
  EXPECT_LT(met.begin()->value().to_number<int>(), cases);
  int refused = 0;
  for (const auto& [rule, times] : told.at("refused").as_object())
    refused += times.to_number<int>();
  EXPECT_EQ(refused, told.at("summary").at("near_legal").to_number<int>());
}

TEST_F(Campaign, WithProcessesIsTheSameOnAnyNumberOfWorkers) {
  const std::string one = folder_ / "one", two = folder_ / "two";
  EXPECT_EQ(fuzz("--seed 6 --count 6 --jobs 1 --with processes --log " + one).status, 0);
  EXPECT_EQ(fuzz("--seed 6 --count 6 --jobs 3 --with processes --log " + two).status, 0);
  EXPECT_EQ(cases_of(one), cases_of(two));
  const Ran other = fuzz("--seed 6 --count 6 --resume --log " + one);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("begun with with \"processes\", this request has \"\""));
}

// A fault of ranks that are processes alone: the token carries the transport.
TEST_F(Campaign, ReplaysWhatProcessesAloneCanShow) {
  const std::string planted = " --plant a-rank-captures-a-collective-less";
  EXPECT_EQ(fuzz("--quiet --seed 5 --count 12" + planted).status, 0);
  const Ran found =
      fuzz("--quiet --seed 5 --count 60 --with processes --stop-after 1 --reruns 1" + planted);
  EXPECT_EQ(found.status, 1) << found.err << found.out;
  EXPECT_THAT(found.out, HasSubstr("by collective: ranks would replay different collectives"));
  EXPECT_THAT(found.out, HasSubstr("deterministic: 1 of 1 further runs failed"));
  const std::size_t begin = found.out.find("lockstep replay ") + 9;
  const Ran again = run_lockstep(found.out.substr(begin, found.out.find('\n', begin) - begin));
  EXPECT_EQ(again.status, 1) << again.err;
  EXPECT_THAT(again.out, HasSubstr("by collective: ranks would replay different collectives"));
}

// Its only case is to be refused, so no rank is ever a process.
TEST_F(Campaign, ThatNeverReachesWhatItWasAskedForFails) {
  std::uint64_t seed = 0;
  while (!make_case(seed, 0, "small", {.processes = true}).invalid) ++seed;
  const std::string words =
      "--seed " + std::to_string(seed) + " --count 1 --with processes --jobs 1";
  const Ran ran = fuzz(words);
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_THAT(ran.out,
              HasSubstr("FAIL the campaign is vacuous: no case was judged with processes"));
  EXPECT_THAT(ran.out, HasSubstr("with processes: 0 cases"));
  EXPECT_EQ(fuzz(words + " --case 0").status, 0);  // A case alone says nothing of the others.
}

TEST_F(Campaign, RefusesWhatTheMachineLacks) {
  const Ran nccl = fuzz("--count 1 --with processes,nccl");
  EXPECT_EQ(nccl.status, 3);
  EXPECT_THAT(nccl.err, HasSubstr("--with nccl: parallel.transport: nccl asks for 2 GPUs"));
  EXPECT_EQ(fuzz("--count 1 --with mpi").status, 2);
  EXPECT_EQ(near("--count 1 --with cudnn").status, 2);
  const Ran engine = run_lockstep("fuzz --engine true --with processes --count 1");
  EXPECT_EQ(engine.status, 2);
  EXPECT_THAT(engine.err, HasSubstr("--with is of lockstep's own engine"));
}

// Around a file: the key that it names is in every token, on any number of workers.
TEST_F(Campaign, DrawsAroundAFile) {
  const std::string mine = folder_.file(
      "mine.yaml", "schema: 1\nname: mine\nmodel: {pattern: \"M*-\"}\ntraining: {steps: 2}\n");
  const std::string one = folder_ / "one", two = folder_ / "two";
  EXPECT_EQ(fuzz("--seed 2 --count 10 --jobs 1 --like " + mine + " --log " + one).status, 0);
  EXPECT_EQ(fuzz("--seed 2 --count 10 --jobs 3 --like " + mine + " --log " + two).status, 0);
  EXPECT_EQ(cases_of(one), cases_of(two));
  int kept = 0;
  for (const auto& [index, line] : cases_of(one)) {
    const Scenario s = read_token(json::value_to<std::string>(line.at("token")));
    EXPECT_TRUE(s.model.pattern == "M*-" || s.training.steps == 2) << index;  // One may be drawn.
    kept += s.model.pattern == "M*-" && s.training.steps == 2;
  }
  EXPECT_GE(kept, 5);
  // Another file is another campaign.
  const std::string other =
      folder_.file("other.yaml", "schema: 1\nname: other\ntraining: {steps: 2}\n");
  EXPECT_EQ(fuzz("--seed 2 --count 10 --resume --like " + other + " --log " + one).status, 2);
  EXPECT_EQ(fuzz("--seed 2 --count 10 --resume --log " + one).status, 2);
  EXPECT_EQ(fuzz("--count 1 --like " + folder_.file("bad.yaml", "schema: 2\n")).status, 2);
  EXPECT_EQ(near("--count 1 --like " + mine).status, 2);
  // A file that cannot run here.
  const Ran nccl = fuzz("--count 1 --like " + library_file("fsdp-nccl-sums-grads"));
  EXPECT_EQ(nccl.status, 3);
  EXPECT_THAT(nccl.err, HasSubstr("--like "));
  EXPECT_THAT(nccl.err, HasSubstr("GPUs and NCCL, and this is the simulated device"));
  const std::string huge =
      folder_.file("huge.yaml", "schema: 1\nname: huge\nmodel: {hidden: 16384, vocab: 262144}\n");
  const Ran large = fuzz("--count 1 --like " + huge);
  EXPECT_EQ(large.status, 3);
  EXPECT_THAT(large.err, HasSubstr("model.hidden"));
  EXPECT_EQ(fuzz("--count 1 --like " + mine + " --json " + mine).status,
            2);  // It would replace it.
}

TEST_F(Campaign, DrawsAroundAFileForAnEngine) {
  const std::string mine =
      folder_.file("mine.yaml", "schema: 1\nname: mine\ntraining: {steps: 2}\n");
  const Ran ran = run_lockstep("fuzz --seed 2 --count 1 --quiet --like " + mine + " --engine \"" +
                               lockstep_program() + " engine --device sim\"");
  EXPECT_EQ(ran.status, 0) << ran.err << ran.out;
}

}  // namespace
}  // namespace lockstep
