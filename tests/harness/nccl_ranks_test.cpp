// Ranks with a GPU each, as a user has them: their bits are those of virtual ranks; one that is lost becomes a report
// and exit status 4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <memory>

#include "tests/harness/program.h"
#include "tests/harness/started.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class NcclRanks : public testing::Test {
 protected:
  std::string file(const std::string& transport, const std::string& strategy, const std::string& precision) const {
    return folder_.file(strategy + "-" + transport + "-" + precision + ".yaml",
                        "schema: 1\nname: ranks\nnumerics: [" + precision +
                            "]\nmodel: {pattern: \"M*-*-\", dropout: 0.1}\n"
                            "training: {steps: 5, microbatches: 2, eval_every: 2, recapture_at: [3]}\n"
                            "data: {documents: [[[17, 1, 0, 30], [5, 16, 33], [3, 3], [9, 8]], "
                            "[[64], [3, 4, 20, 15, 9], [1], [2, 7]]]}\nfsdp: {strategy: " +
                            strategy + "}\nparallel: {data: 2, transport: " + transport + "}\n");
  }
  static std::string steps_of(const std::string& device, const std::string& scenario) {
    const Ran ran = run_lockstep("train --quiet --digest-every 1 --deadline 30 --device " + device + " " + scenario);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out.substr(0, ran.out.rfind("loss "));
  }
  TemporaryFolder folder_;
};

TEST_F(NcclRanks, HaveTheBitsOfVirtualRanks) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
      const std::string local = file("local", strategy, precision);
      const std::string on_sim = steps_of("sim", local);
      EXPECT_THAT(on_sim, HasSubstr("step 5  loss "));
      EXPECT_EQ(steps_of("cuda", local), on_sim) << strategy << " " << precision;
      EXPECT_EQ(steps_of("cuda", file("nccl", strategy, precision)), on_sim) << strategy << " " << precision;
    }
  }
}

TEST_F(NcclRanks, AreStartedByALauncherAsWell) {
  const std::string scenario = file("auto", "optim_grads_params", "fp32");
  std::vector<std::unique_ptr<Started>> processes;
  for (const char* rank : {"0", "1"}) {
    for (const char* name : {"RANK", "LOCAL_RANK"}) ::setenv(name, rank, 1);
    ::setenv("WORLD_SIZE", "2", 1);
    processes.push_back(
        std::make_unique<Started>("train --device cuda --quiet --digest-every 1 --deadline 30 --meeting " +
                                      (folder_ / "meeting") + " " + scenario,
                                  0, folder_ / rank));
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE"}) ::unsetenv(name);
  }
  for (const auto& process : processes) EXPECT_EQ(process->exit_status(), 0);
  EXPECT_THAT(slurp(folder_ / "0"), HasSubstr(steps_of("sim", file("local", "optim_grads_params", "fp32"))));
}

TEST_F(NcclRanks, ReportARankThatIsLost) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const int lost : {0, 1}) {
      const std::string output = folder_ / "words";
      Started run(
          "train --device cuda --quiet --steps 1000000 --deadline 3 " + file("nccl", "optim_grads_params", "fp32"), 0,
          output);
      std::vector<pid_t> ranks;
      EXPECT_TRUE(comes_true([&] { return (ranks = children_of(run.pid())).size() == 2; }));
      if (ranks.size() != 2) return;
      std::sort(ranks.begin(), ranks.end());
      pause_ms(6000);
      const auto start = std::chrono::steady_clock::now();
      ::kill(ranks[static_cast<std::size_t>(lost)], signal);
      EXPECT_EQ(run.exit_status(), 4);
      EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
      for (const pid_t rank : ranks) EXPECT_FALSE(lives(rank));
      EXPECT_THAT(slurp(output), HasSubstr("lockstep: rank " + std::to_string(1 - lost) + ": "));
      EXPECT_THAT(slurp(output), HasSubstr("waits in collective "));
    }
  }
}

// What a run left that lost a rank continues as if nothing had happened.
TEST_F(NcclRanks, ResumeBitForBitAfterAKill) {
  const std::string line = "train --device cuda --quiet --steps 300 --deadline 3 " +
                           file("nccl", "optim_grads_params", "bf16") + " --checkpoint " + (folder_ / "state") +
                           " --checkpoint-every 1";
  Started run(line);
  EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(folder_ / "state"); }));
  const std::vector<pid_t> ranks = children_of(run.pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGKILL);
  EXPECT_EQ(run.exit_status(), 4);
  const std::string rest = " --device cuda --quiet --steps 300 --digest-every 100 ";
  const Ran resumed =
      run_lockstep("train" + rest + file("nccl", "optim_grads_params", "bf16") + " --resume " + (folder_ / "state"));
  const Ran whole = run_lockstep("train" + rest + file("local", "optim_grads_params", "bf16"));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("step 300  loss "));
  const auto last = [](const std::string& out) {
    const std::size_t at = out.rfind("step 300  loss ");
    return out.substr(at, out.find('\n', at) - at);
  };
  EXPECT_EQ(last(resumed.out), last(whole.out));
}

TEST_F(NcclRanks, NameWhatIsWrong) {
  const auto judge_of = [&](const std::string& fault) {
    const Ran ran = run_lockstep("verify --device cuda --quiet --deadline 20 --plant " + fault + " --json " +
                                 (folder_ / "result.json") + " " + file("nccl", "optim_grads_params", "fp32"));
    EXPECT_EQ(ran.status, 1) << ran.err << ran.out;
    return std::string(boost::json::parse(slurp(folder_ / "result.json")).at("results").at(0).at("judge").as_string());
  };
  EXPECT_EQ(judge_of("reduce-dropped"), "gradient");
  EXPECT_EQ(judge_of("a-rank-gathers-in-another-order"), "collective");
  EXPECT_EQ(judge_of("gather-not-awaited"), "hazard");
}

TEST_F(NcclRanks, AreTimed) {
  const Ran ran =
      run_lockstep("bench --device cuda --section fsdp --ranks 2 --budget 0.01 --only \"params partial\" --json " +
                   (folder_ / "times.json"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  const auto times = boost::json::parse(slurp(folder_ / "times.json")).at("fsdp");
  EXPECT_EQ(times.at("transport"), "nccl");
  const auto& row = times.at("rows").at(0);
  for (const char* exchange : {"gathers", "reductions"}) EXPECT_GT(row.at(exchange).at("bare_seconds").as_double(), 0);
}

}  // namespace
}  // namespace lockstep
