// Ranks as processes, as a user has them: the bits are those of one rank; a rank that is lost
// becomes a report and exit status 4 within the deadline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <random>

#include "harness/base/interrupts.h"
#include "harness/run/device_choice.h"
#include "harness/run/launch.h"
#include "harness/run/multi_process_case.h"
#include "harness/run/run_case.h"
#include "tests/engine/rendezvous/stores.h"
#include "tests/harness/run/started_afar.h"
#include "tests/support/program.h"
#include "tests/support/seed.h"

namespace lockstep {
namespace {

using test::free_port;
using testing::HasSubstr;

class RankProcesses : public testing::Test {
 protected:
  static constexpr const char* kWholeStep = "cuda_graph: {impl: full_iteration}\n";
  // Four global microbatches a step on `ranks` ranks.
  std::string file(int ranks, const std::string& transport, const std::string& strategy,
                   const std::string& more = "") const {
    const std::string number = std::to_string(ranks);
    return folder_.file(
        strategy + "-" + transport + number + (more.empty() ? ".yaml" : "-more.yaml"),
        "schema: 1\nname: ranks\nmodel: {pattern: \"M*-*-\"}\n"
        "training: {steps: 4, microbatches: " +
            std::to_string(ranks == 3 ? 1 : 4 / ranks) +
            ", eval_every: 2}\nfsdp: {strategy: " + strategy +
            "}\n"
            "data: {documents: [[[17, 1, 0, 30], [5, 16, 33], [3, 3], [9, 8]], "
            "[[64], [3, 4, 20, 15, 9], [1], [2, 7]]]}\n"
            "parallel: {data: " +
            number + ", transport: " + transport + "}\n" + more);
  }
  static std::string trained(const std::string& file) {
    const Ran ran = run_lockstep("train --device sim --quiet --digest-every 1 " + file);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  }
  // The steps alone: what is said of the whole run stands after the time that it took.
  static std::string without_summary(const std::string& out) {
    return out.substr(0, out.rfind("loss "));
  }
  // Both end well, and the first alone says the steps.
  void expect_steps(Started& first, Started& second, const std::string& steps) const {
    EXPECT_EQ(first.exit_status(), 0) << slurp(folder_ / "0");
    EXPECT_EQ(second.exit_status(), 0) << slurp(folder_ / "1");
    EXPECT_THAT(slurp(folder_ / "0"), HasSubstr(steps));
    EXPECT_EQ(slurp(folder_ / "1"), "");
  }
  TemporaryFolder folder_;
};

TEST_F(RankProcesses, HaveTheBitsOfOneRank) {
  for (const char* strategy : {"optim_grads", "optim_grads_params"}) {
    const std::string one = trained(file(1, "local", strategy));
    EXPECT_THAT(one, HasSubstr("step 4  loss "));
    for (const int ranks : {2, 4}) {
      EXPECT_EQ(trained(file(ranks, "local", strategy)), one);
      EXPECT_EQ(trained(file(ranks, "shm", strategy)), one);
    }
  }
  for (const char* strategy : {"no_shard", "optim"}) {
    EXPECT_EQ(trained(file(2, "shm", strategy)), trained(file(2, "local", strategy)));
  }
}

TEST_F(RankProcesses, ReplayAWholeStepWithTheBitsOfVirtualRanks) {
  for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
    EXPECT_EQ(trained(file(2, "shm", strategy, kWholeStep)), trained(file(2, "local", strategy)))
        << strategy;
  }
}

// As torchrun starts process `rank` of `size`; `job` is empty where it tells none.
std::unique_ptr<Started> started(const std::string& scenario, int rank, int size,
                                 const std::string& job, const std::string& output) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  if (!job.empty()) ::setenv("MASTER_ADDR", job.c_str(), 1);
  auto one = std::make_unique<Started>(
      "train --device sim --quiet --digest-every 1 --deadline 30 " + scenario, 0, output);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) ::unsetenv(name);
  return one;
}

TEST_F(RankProcesses, AreStartedByALauncherAsWell) {
  const std::string one = without_summary(trained(file(1, "local", "optim_grads")));
  for (const int ranks : {2, 4}) {  // In two processes.
    const std::string scenario = file(ranks, "auto", "optim_grads"),
                      job = "test-" + std::to_string(::getpid());
    const auto second = started(scenario, 1, 2, job, folder_ / "1");
    const auto first = started(scenario, 0, 2, job, folder_ / "0");
    expect_steps(*first, *second, one);
  }
}

TEST_F(RankProcesses, HaveTheBitsOfOneRankOnSeveralMachines) {
  const std::string one = without_summary(trained(file(1, "local", "optim_grads_params")));
  for (const int ranks : {2, 4}) {  // In two processes.
    const std::string words = "--deadline 30 " + file(ranks, "auto", "optim_grads_params");
    const std::uint16_t port = free_port();
    const auto second = started_afar(words, 1, 2, port, folder_ / "1");
    const auto first = started_afar(words, 0, 2, port, folder_ / "0");
    expect_steps(*first, *second, one);
  }
}

TEST_F(RankProcesses, NeedOneKeyOnAllMachines) {
  const std::string scenario = file(2, "auto", "optim_grads");
  const auto with_key = [&](int rank, const std::string& key, const std::string& seconds,
                            std::uint16_t port) {
    ::setenv("LOCKSTEP_MEETING_KEY", key.c_str(), 1);
    auto one = started_afar("--deadline " + seconds + " " + scenario, rank, 2, port,
                            folder_ / std::to_string(rank));
    ::unsetenv("LOCKSTEP_MEETING_KEY");
    return one;
  };
  const std::string right(32, 'r'), wrong(32, 'w');
  {
    const std::uint16_t port = free_port();
    const auto first = with_key(0, right, "30", port), second = with_key(1, right, "30", port);
    EXPECT_EQ(first->exit_status(), 0) << slurp(folder_ / "0");
    EXPECT_EQ(second->exit_status(), 0) << slurp(folder_ / "1");
  }
  const std::uint16_t port = free_port();
  const auto first = with_key(0, right, "3", port), second = with_key(1, wrong, "30", port);
  EXPECT_EQ(second->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "1"), HasSubstr("what listens there does not have the same key"));
  EXPECT_EQ(first->exit_status(), 4);
  EXPECT_THAT(slurp(folder_ / "0"), HasSubstr("it may have another key"));
  EXPECT_EQ(with_key(0, "short", "1", port)->exit_status(), 2);
}

TEST_F(RankProcesses, NeedOneScenarioOnAllMachines) {
  const std::string scenario = file(2, "auto", "optim_grads");
  const std::uint16_t port = free_port();
  const auto second =
      started_afar("--deadline 30 --steps 5 " + scenario, 1, 2, port, folder_ / "1");
  const auto first = started_afar("--deadline 30 " + scenario, 0, 2, port, folder_ / "0");
  EXPECT_EQ(first->exit_status(), 2);
  EXPECT_EQ(second->exit_status(), 2);
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(slurp(folder_ / rank), HasSubstr("rank 0 runs `  "));
    EXPECT_THAT(slurp(folder_ / rank), HasSubstr("steps: 4`, and `  steps: 5`"));
    EXPECT_THAT(slurp(folder_ / rank),
                HasSubstr("runs rank 1: all processes need one build and one scenario"));
  }
}

// LOCKSTEP_KILLS of them, at random moments; now and then a rank is stuck instead.
TEST_F(RankProcesses, ReportAKilledRankOnAnotherMachine) {
  std::mt19937_64 random(test_seed());
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  const std::string scenario = file(3, "shm", "optim_grads_params");
  for (int left = wanted ? std::atoi(wanted) : 3; left > 0; --left) {
    const std::uint16_t port = free_port();
    const int lost = static_cast<int>(random() % 3);
    const bool stuck = left % 3 == 0;
    std::vector<std::unique_ptr<Started>> ranks;
    const auto output = [&](int rank) {
      return folder_ / (std::to_string(left) + "-" + std::to_string(rank));
    };
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(
          started_afar("--steps 1000000 --deadline 2 " + scenario, rank, 3, port, output(rank)));
    }
    EXPECT_TRUE(comes_true([&] { return slurp(output(0)).find("step 1 ") != std::string::npos; }));
    pause_ms(static_cast<int>(random() % 100));
    const auto start = std::chrono::steady_clock::now();
    ::kill(ranks[static_cast<std::size_t>(lost)]->pid(), stuck ? SIGSTOP : SIGKILL);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(ranks[static_cast<std::size_t>(rank)]->exit_status(), 4);
      // Rank 0 passes it on, and it stops when it is stuck itself or has noticed another first.
      EXPECT_THAT(slurp(output(rank)),
                  testing::ContainsRegex("lockstep: rank [0-2]: rank [0-2] (did not come within 2 s"
                                         "|has left): rank 0 .*; rank 1 .*; rank 2 "));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    const std::string name =
        "rank " + std::to_string(lost) + (stuck ? " did not come within 2 s: " : " has left: ");
    EXPECT_THAT(slurp(output(lost == 0 ? 1 : 0)), HasSubstr(name));
  }
}

using Variables = std::vector<std::pair<const char*, const char*>>;
Ran run_with(const Variables& variables, const std::string& words) {
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  const Ran ran = run_lockstep(words);
  for (const auto& [name, value] : variables) ::unsetenv(name);
  return ran;
}

// A shell within Slurm has as many variables, and nonsense comes from no launcher.
TEST_F(RankProcesses, AreNoConcernOfARunOfOneProcess) {
  const std::string train = "train --device sim --quiet --checkpoint " + (folder_ / "checkpoint") +
                            " " + file(1, "auto", "no_shard");
  const Variables slurm{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}};
  Variables shell = slurm, port = slurm;
  shell.insert(shell.end(), {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_JOB_NODELIST", "n1"}});
  port.insert(port.end(), {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "70000"}});
  for (const Variables& variables :
       {slurm, shell, port, Variables{{"RANK", "gold"}, {"WORLD_SIZE", "3"}},
        Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}}) {
    const Ran ran = run_with(variables, train);
    EXPECT_EQ(ran.status, 0) << variables.back().first << ": " << ran.err;
  }
  // Nor of one that fails: its report takes the place of an earlier one.
  const std::string report = folder_.file("report.json", "of an earlier run");
  EXPECT_EQ(run_with({{"RANK", "gold"}, {"WORLD_SIZE", "3"}},
                     "verify --json " + report + " /no/such/file")
                .status,
            2);
  EXPECT_THAT(slurp(report), HasSubstr("\"error\""));
}

TEST_F(RankProcesses, SayWhereTheyMeet) {
  const auto doctor = [](const Variables& variables) { return run_with(variables, "doctor").out; };
  EXPECT_THAT(doctor({}), HasSubstr("launcher      none: "));
  EXPECT_THAT(
      doctor({{"SLURM_PROCID", "3"},
              {"SLURM_NTASKS", "4"},
              {"SLURM_LOCALID", "1"},
              {"SLURM_NNODES", "2"},
              {"SLURM_JOB_ID", "7"},
              {"SLURM_JOB_NODELIST", "gpu[07-08]"}}),
      HasSubstr(
          "launcher      Slurm: process 3 of 4, 1 on this machine, meeting at gpu07:15007\n"));
  EXPECT_THAT(doctor({{"OMPI_COMM_WORLD_RANK", "0"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              HasSubstr("does not say where rank 0 is: --meeting HOST:PORT"));
}

TEST_F(RankProcesses, RefuseWhatALauncherSaysWrong) {
  const std::string scenario = file(2, "auto", "optim_grads");
  EXPECT_EQ(started(scenario, 0, 3, "job", folder_ / "0")->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "0"),
              HasSubstr("torchrun started 3 processes, but parallel.data is 2"));
  EXPECT_EQ(started(file(1, "auto", "no_shard"), 0, 2, "job", folder_ / "4")->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "4"), HasSubstr("torchrun started 2 processes, but parallel.data is "
                                              "1: each would do all of it, and write the "));
  EXPECT_EQ(started(file(2, "local", "optim"), 0, 2, "job", folder_ / "5")->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "5"),
              HasSubstr("but parallel.transport is local: each would do all of it"));
  EXPECT_EQ(started(scenario, 0, 2, "", folder_ / "1")->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "1"), HasSubstr("--meeting PATH"));
  EXPECT_EQ(started(file(4, "shm", "optim", kWholeStep), 0, 2, "job", folder_ / "3")->exit_status(),
            2);
  EXPECT_THAT(slurp(folder_ / "3"),
              HasSubstr("torchrun started 2 processes for 4 ranks, but a graph that holds their "
                        "exchanges needs a process for each"));
  EXPECT_EQ(started(scenario, 2, 2, "job", folder_ / "2")->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "2"), HasSubstr("RANK is 2, but WORLD_SIZE is 2"));
}

TEST_F(RankProcesses, LeaveAFileOfTheUserWhereTheyWereToMeet) {
  const std::string keep = folder_.file("keep", "precious");
  const auto first =
      started(file(2, "auto", "optim_grads") + " --meeting " + keep, 0, 2, "job", folder_ / "0");
  EXPECT_EQ(first->exit_status(), 2);
  EXPECT_THAT(slurp(folder_ / "0"), HasSubstr("is no segment of this user's lockstep: it stays"));
  EXPECT_EQ(slurp(keep), "precious");
}

// The segment of a run that was killed, with all its processes, is gone after the next run.
TEST_F(RankProcesses, RemoveWhatAKilledRunLeft) {
  const std::string temporary = folder_ / "tmp", scenario = file(2, "shm", "optim_grads");
  std::filesystem::create_directory(temporary);
  const auto is_empty = [&] { return std::filesystem::is_empty(temporary); };
  ::setenv("TMPDIR", temporary.c_str(), 1);
  Started run("train --device sim --quiet --steps 1000000 " + scenario);
  Started other("train --device sim --quiet --steps 1000000 " + scenario);
  EXPECT_TRUE(comes_true(
      [&] { return children_of(run.pid()).size() == 2 && children_of(other.pid()).size() == 2; }));
  const std::vector<pid_t> ranks = children_of(run.pid());
  EXPECT_TRUE(run.kill_now());
  EXPECT_TRUE(comes_true([&] { return std::none_of(ranks.begin(), ranks.end(), lives); }));
  EXPECT_FALSE(is_empty());
  EXPECT_EQ(run_lockstep("train --device sim --quiet " + scenario).status, 0);
  ::unsetenv("TMPDIR");
  const auto left = std::distance(std::filesystem::directory_iterator(temporary), {});
  EXPECT_EQ(left, 1);  // That of the run that goes on.
  EXPECT_EQ(children_of(other.pid()).size(), 2u);
}

TEST_F(RankProcesses, AreJudgedByTheOracle) {
  const std::string scenario = file(2, "shm", "optim_grads_params");
  const Ran ran =
      run_lockstep("verify --device sim --json " + (folder_ / "result.json") + " " + scenario);
  EXPECT_EQ(ran.status, 0) << ran.err << ran.out;
  const auto result = boost::json::parse(slurp(folder_ / "result.json")).at("results").at(0);
  EXPECT_EQ(result.at("verdict"), "holds");
  EXPECT_GT(result.at("counters").at("collectives").as_int64(), 10);
}

TEST_F(RankProcesses, NameWhatIsWrongAndWhere) {
  std::string scenario = file(2, "shm", "optim_grads_params");
  const auto verified = [&](const std::string& fault) {
    const Ran ran = run_lockstep("verify --device sim --quiet --deadline 20 --plant " + fault +
                                 " --json " + (folder_ / "result.json") + " " + scenario);
    EXPECT_EQ(ran.status, 1) << ran.err << ran.out;
    return boost::json::parse(slurp(folder_ / "result.json")).at("results").at(0);
  };
  const auto dropped = verified("reduce-dropped");
  EXPECT_EQ(dropped.at("judge"), "gradient") << dropped;
  EXPECT_TRUE(dropped.at("first_difference").is_object()) << dropped;
  const auto reordered = verified("a-rank-gathers-in-another-order");
  EXPECT_EQ(reordered.at("judge"), "collective") << reordered;
  EXPECT_THAT(std::string(reordered.at("reason").as_string()),
              HasSubstr("ranks call different collectives: rank "));
  // A difference that one rank alone sees.
  const auto one = verified("ranks-read-the-same-documents");
  EXPECT_EQ(one.at("first_difference").at("rank"), 1) << one;
  // A rank that breaks a contract has judged; the others only miss it.
  const auto broken = verified("last-unit-stays-in-its-slot");
  EXPECT_EQ(broken.at("judge"), "contract") << broken;
  EXPECT_EQ(broken.at("verdict"), "violated") << broken;
  EXPECT_THAT(std::string(broken.at("reason").as_string()),
              HasSubstr("rank 0: the worker was killed by SIGABRT: broken contract in "));
  scenario = file(2, "shm", "optim_grads_params", std::string(kWholeStep) + "numerics: [bf16]\n");
  for (const char* fault :
       {"a-rank-captures-a-collective-less", "a-rank-captures-in-another-order"}) {
    const auto captured = verified(fault);
    EXPECT_EQ(captured.at("judge"), "collective") << captured;
    EXPECT_THAT(std::string(captured.at("reason").as_string()),
                HasSubstr("ranks would replay different collectives: call "))
        << captured;
  }
  // One rank replays the step, the other has too many documents and runs it eagerly.
  scenario =
      file(2, "shm", "optim_grads", "cuda_graph: {impl: full_iteration, max_packed_seqs: 4}\n");
  const auto alone = verified("ranks-fall-back-alone");
  EXPECT_EQ(alone.at("judge"), "collective") << alone;
  EXPECT_THAT(std::string(alone.at("reason").as_string()),
              HasSubstr("launch of a graph on stream compute"));
}

// Its exchanges are the host's, which no graph on a GPU can hold.
TEST_F(RankProcesses, ReplayAWholeStepOverSharedMemoryOnTheSimulatorAlone) {
  Scenario scenario;
  scenario.parallel = {.data = 2, .transport = Transport::shm};
  scenario.cuda_graph.impl = GraphImpl::full_iteration;
  EXPECT_THAT(lacking(scenario, "cuda"), HasSubstr("which a graph on a GPU cannot hold"));
  EXPECT_EQ(lacking(scenario, "sim"), "");
  const CaseResult result = run_case(scenario, {.device = "cuda"});
  EXPECT_EQ(result.verdict, Verdict::broken);
  EXPECT_EQ(result.reason, lacking(scenario, "cuda"));
}

// Legal, but not for this machine: said where it was asked for, passed over where it was found.
TEST_F(RankProcesses, OverNcclNeedAGpuEach) {
  const std::string scenario = file(2, "nccl", "optim_grads");
  for (const char* command : {"verify", "train"}) {
    const Ran ran = run_lockstep(std::string(command) + " --device sim --quiet " + scenario);
    EXPECT_EQ(ran.status, 3) << command;
    EXPECT_THAT(
        ran.err,
        HasSubstr("parallel.transport: nccl asks for 2 GPUs and NCCL, and this is the simulated"));
  }
  EXPECT_EQ(run_lockstep("verify --device sim --quiet --skip-code 77 " + scenario).status, 77);
  // Beside others that run it is told as broken: what they show is not lost.
  const std::string shared = file(2, "shm", "optim_grads");
  const Ran beside = run_lockstep("verify --device sim " + scenario + " " + shared);
  EXPECT_EQ(beside.status, 3) << beside.err;
  EXPECT_THAT(beside.out, HasSubstr("broken by device"));
  EXPECT_THAT(beside.out, HasSubstr("nccl asks for 2 GPUs and NCCL, and this is the simulated"));
  EXPECT_THAT(beside.out, HasSubstr("1 held, 0 violated, 1 broken"));
  // A violation without a run is not skipped with it.
  const std::string legal = folder_.file(
      "legal.yaml", "schema: 1\nname: legal\nexpect: {verdict: refused, error: L17}\n");
  EXPECT_EQ(
      run_lockstep("verify --device sim --quiet --skip-code 77 " + scenario + " " + legal).status,
      1);
  const TemporaryFolder both;
  std::filesystem::copy(scenario, both / "nccl.yaml");
  std::filesystem::copy(file(2, "shm", "optim_grads"), both / "shm.yaml");
  const Ran found =
      run_lockstep("verify --device sim --json " + (folder_ / "found.json") + " " + (both / ""));
  EXPECT_EQ(found.status, 0) << found.err;
  const auto results = boost::json::parse(slurp(folder_ / "found.json")).at("results").as_array();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].at("verdict"), "skipped");
  EXPECT_EQ(results[1].at("verdict"), "holds");
}

CaseResult result_of(Verdict verdict, JudgeKind judge, std::int64_t step = -1) {
  CaseResult result;
  result.verdict = verdict;
  result.judge = judge;
  if (step >= 0) result.first_difference.emplace().step = step;
  return result;
}

TEST(WorstOfRanks, IsTheFirstDifferenceElseWhatARankSaysOfItself) {
  const CaseResult holds, hang = result_of(Verdict::broken, JudgeKind::watchdog),
                          device = result_of(Verdict::broken, JudgeKind::device),
                          elsewhere = result_of(Verdict::violated, JudgeKind::remote_failure),
                          hazard = result_of(Verdict::violated, JudgeKind::hazard),
                          late = result_of(Verdict::violated, JudgeKind::loss, 3),
                          early = result_of(Verdict::violated, JudgeKind::weights, 2);
  const std::vector<CaseResult> from_best{holds, hang, device, hazard, late, early};
  for (std::size_t better = 0; better < from_best.size(); ++better) {
    for (std::size_t worse = better + 1; worse < from_best.size(); ++worse) {
      EXPECT_EQ(worst({from_best[better], from_best[worse]}).judge, from_best[worse].judge);
      EXPECT_EQ(worst({from_best[worse], from_best[better]}).judge, from_best[worse].judge);
    }
  }
  EXPECT_EQ(worst({elsewhere, late}).judge, JudgeKind::loss);
  EXPECT_EQ(worst({elsewhere, device}).judge, JudgeKind::device);
}

// Three ranks that train for good, of which one is lost; what all say comes back.
std::string words_of_the_others(const std::string& scenario, const TemporaryFolder& folder,
                                int lost, int moment_ms, int signal) {
  const std::string output = folder / "words";
  Started run("train --device sim --quiet --steps 1000000 --deadline 2 " + scenario, 0, output);
  std::vector<pid_t> ranks;
  EXPECT_TRUE(comes_true([&] { return (ranks = children_of(run.pid())).size() == 3; }));
  if (ranks.size() != 3) return "";
  std::sort(ranks.begin(), ranks.end());
  pause_ms(moment_ms);
  const auto start = std::chrono::steady_clock::now();
  ::kill(ranks[static_cast<std::size_t>(lost)], signal);
  EXPECT_EQ(run.exit_status(), 4);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  for (const pid_t rank : ranks) EXPECT_FALSE(lives(rank));
  return slurp(output);
}

void expect_reports(const std::string& words, int lost, const std::string& how) {
  const std::string missing = ": rank " + std::to_string(lost) + how + ": rank 0 ";
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == lost) continue;
    EXPECT_THAT(words, HasSubstr("lockstep: rank " + std::to_string(rank) + missing));
  }
}

// LOCKSTEP_KILLS of them, at random moments.
TEST_F(RankProcesses, ReportAKilledRankAndEnd) {
  std::mt19937_64 random(test_seed());
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  for (int left = wanted ? std::atoi(wanted) : 2; left > 0; --left) {
    const std::string scenario =
        file(3, "shm", "optim_grads_params", left % 2 == 0 ? kWholeStep : "");
    const int lost = static_cast<int>(random() % 3);
    const std::string words =
        words_of_the_others(scenario, folder_, lost, static_cast<int>(random() % 200), SIGKILL);
    // The others need not wait for the deadline: the process that started them saw it die.
    expect_reports(words, lost, " has left");
    EXPECT_THAT(words, HasSubstr("rank " + std::to_string(lost) + " was lost after "));
    EXPECT_THAT(words,
                HasSubstr("lockstep: rank " + std::to_string(lost) + " was killed by SIGKILL"));
  }
}

// Trains with checkpoints at `state`, within a step too, and kills a rank at a random moment behind
// the first one. False if the run had ended before.
bool loses_a_rank(const std::string& training, const std::string& state, std::size_t size,
                  std::mt19937_64& random) {
  Started run(training + " --checkpoint " + state + " --checkpoint-every 1 --checkpoint-within 1");
  std::vector<pid_t> ranks;
  EXPECT_TRUE(comes_true([&] {
    return (ranks = children_of(run.pid())).size() == size && std::filesystem::exists(state);
  }));
  if (ranks.size() != size) return false;
  pause_ms(static_cast<int>(random() % 100));
  ::kill(ranks[random() % size], SIGKILL);
  return run.exit_status() == 4;
}

// The checkpoint of a run that lost a rank continues as if nothing had happened.
TEST_F(RankProcesses, ResumeBitForBitAfterAKill) {
  std::mt19937_64 random(test_seed());
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  const std::string line =
      "train --device sim --quiet --steps 200 --deadline 2 " + file(2, "shm", "optim_grads_params");
  const std::string whole = without_summary(run_lockstep(line).out);
  EXPECT_THAT(whole, HasSubstr("step 200  loss "));
  int resumed = 0;
  for (int left = wanted ? std::atoi(wanted) : 2; left > 0; --left) {
    const std::string state = folder_ / ("state" + std::to_string(left));
    if (!loses_a_rank(line, state, 2, random)) continue;
    ++resumed;
    const std::string rest = without_summary(run_lockstep(line + " --resume " + state).out);
    EXPECT_EQ(rest.substr(rest.rfind("step 200")), whole.substr(whole.rfind("step 200")));
  }
  std::printf("%d were killed before their end\n", resumed);
  EXPECT_GT(resumed, 0);
}

// Two stages of two ranks that share experts lose a rank. Their checkpoint continues on every
// arrangement of as many data ranks.
TEST_F(RankProcesses, ResumeOnOtherStagesAndExpertsAfterAKill) {
  std::mt19937_64 random(test_seed());
  const char* wanted = std::getenv("LOCKSTEP_KILLS");
  const auto line = [&](const std::string& name, const std::string& parallel) {
    return "train --device sim --quiet --steps 60 --digest-every 60 --deadline 2 " +
           folder_.file(name,
                        "schema: 1\nname: arranged\nmodel: {pattern: \"E*EME-\", moe: {experts: "
                        "4, top_k: 2, aux_loss: 0.01}}\ntraining: {steps: 4, microbatches: 2, "
                        "eval_every: 2}\ncuda_graph: {modules: [attn]}\nfsdp: {strategy: "
                        "optim_grads}\ndata: {documents: [[[17, 1, 0, 30], [5, 16, 33], [3, 3], "
                        "[9, 8]], [[64], [3, 4, 20, 15, 9], [1], [2, 7]]]}\n"
                        "parallel: {data: 2, transport: shm" +
                            parallel + "}\n");
  };
  const std::string killed = line("killed.yaml", ", pipeline: 2, expert: 2");
  const std::vector<std::string> others{
      line("one.yaml", ""), line("experts.yaml", ", expert: 2"), line("four.yaml", ", pipeline: 4"),
      line("chunks.yaml", ", pipeline: 2, chunks: 2, schedule: interleaved, expert: 2")};
  const auto last_step = [](const std::string& words) {
    const Ran ran = run_lockstep(words);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const std::string steps = without_summary(ran.out);
    return steps.substr(std::min(steps.rfind("step 60"), steps.size()));
  };
  const std::string whole = last_step(others.front());
  EXPECT_THAT(whole, HasSubstr("step 60  loss "));
  EXPECT_EQ(last_step(killed), whole);
  int resumed = 0;
  for (int left = wanted ? std::atoi(wanted) : 1; left > 0; --left) {
    const std::string state = folder_ / ("state" + std::to_string(left));
    if (!loses_a_rank(killed, state, 4, random)) continue;
    ++resumed;
    EXPECT_EQ(last_step(killed + " --resume " + state), whole);
    for (const std::string& other : others) {
      EXPECT_EQ(last_step(other + " --resume " + state), whole) << other;
    }
  }
  std::printf("%d were killed before their end\n", resumed);
  EXPECT_GT(resumed, 0);
}

TEST_F(RankProcesses, ReportAStuckRankWhichIsKilledThen) {
  const std::string words =
      words_of_the_others(file(3, "shm", "optim_grads"), folder_, 1, 100, SIGSTOP);
  expect_reports(words, 1, " did not come within 2 s");
  EXPECT_THAT(words, HasSubstr("lockstep: some ranks did not notice that another failed"));
}

// The signal of all ends a rank that has no handler yet. Were it called lost, another rank would
// report that one failed.
TEST(LaunchedRanks, AreNotLostToTheSignalOfAll) {
  Scenario scenario;
  scenario.parallel.data = 2;
  scenario.parallel.transport = Transport::shm;
  const Interrupts interrupts;
  const RunFolder folder;
  const std::filesystem::path ready = std::filesystem::path(folder.path()) / "ready";
  const auto body = [&](const LocalRanks& ranks) {
    if (ranks.first() == 1) {
      std::filesystem::create_directory(ready);
      while (true) ::pause();
    }
    std::signal(SIGINT, SIG_IGN);
    if (!comes_true([&] { return std::filesystem::exists(ready); })) return ExitStatus::violated;
    ::kill(::getppid(), SIGINT);
    for (int i = 0; i < 100; ++i) {
      if (ranks.meetings[0]->one_that_is(Store::lost) >= 0) return ExitStatus::violated;
      pause_ms(10);
    }
    return ExitStatus::held;
  };
  std::map<int, RankEnd> ends;
  EXPECT_THROW(launch_here(scenario, 20, folder, body,
                           [&](int rank, const RankEnd& end) { ends[rank] = end; }),
               Interrupted);
  EXPECT_EQ(ends[1].signal, SIGINT);
  EXPECT_EQ(ends[0].signal, 0);
  EXPECT_EQ(ends[0].status, 0);
}

}  // namespace
}  // namespace lockstep
