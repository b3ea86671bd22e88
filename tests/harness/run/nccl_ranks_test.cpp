// Ranks with a GPU each, as a user has them: their bits are those of virtual ranks; one that is
// lost becomes a report and exit status 4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/rendezvous/stores.h"
#include "tests/support/program.h"
#include "tests/support/started.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class NcclRanks : public testing::Test {
 protected:
  // `whole`: a step is one graph.
  std::string file(const std::string& transport, const std::string& strategy,
                   const std::string& precision, bool whole = false) const {
    return folder_.file(
        strategy + "-" + transport + "-" + precision + (whole ? "-whole" : "") + ".yaml",
        "schema: 1\nname: ranks\nnumerics: [" + precision +
            "]\nmodel: {pattern: \"M*-*-\", dropout: 0.1}\n"
            "training: {steps: 5, microbatches: 2, eval_every: 2, recapture_at: [3]}\n"
            "data: {documents: [[[17, 1, 0, 30], [5, 16, 33], [3, 3], [9, 8]], "
            "[[64], [3, 4, 20, 15, 9], [1], [2, 7]]]}\nfsdp: {strategy: " +
            strategy + "}\nparallel: {data: 2, transport: " + transport + "}\n" +
            (whole ? "cuda_graph: {impl: full_iteration}\n" : ""));
  }
  // `lockstep` in the background; most of its time goes by while GPUs are opened, so several go at
  // once.
  class Running {
   public:
    Running(const std::string& line, const std::string& output)
        : output_(output), process_(line, 0, output) {}
    pid_t pid() const { return process_.pid(); }
    std::string said() const { return slurp(output_); }
    std::string end(int status) {
      EXPECT_EQ(process_.exit_status(), status) << said();
      return said();
    }

   private:
    std::string output_;
    Started process_;
  };
  std::unique_ptr<Running> running(const std::string& line) {
    return std::make_unique<Running>(line, folder_ / ("said" + std::to_string(++said_)));
  }
  static std::string steps_line(const std::string& device, const std::string& scenario) {
    return "train --quiet --digest-every 1 --deadline 30 --device " + device + " " + scenario;
  }
  // The lines about steps, and not of the time that they took.
  static std::string steps(const std::string& said) {
    std::istringstream all(said);
    std::string some;
    for (std::string line; std::getline(all, line);) {
      if (line.starts_with("step ")) some += line + "\n";
    }
    return some;
  }
  std::string steps_of(const std::string& device, const std::string& scenario) {
    return steps(running(steps_line(device, scenario))->end(0));
  }
  TemporaryFolder folder_;
  int said_ = 0;
};

TEST_F(NcclRanks, HaveTheBitsOfVirtualRanks) {
  using Strategies = std::vector<const char*>;
  for (const auto& [precision, strategies] :
       {std::pair("fp32", Strategies{"no_shard", "optim_grads_params"}),
        std::pair("bf16", Strategies{"no_shard", "optim", "optim_grads", "optim_grads_params"})}) {
    std::vector<std::unique_ptr<Running>> over_nccl;
    for (const char* strategy : strategies) {
      for (const bool whole : {false, true}) {
        over_nccl.push_back(running(steps_line("cuda", file("nccl", strategy, precision, whole))));
      }
    }
    for (std::size_t i = 0; i < strategies.size(); ++i) {
      const std::string on_sim = steps_of("sim", file("local", strategies[i], precision));
      EXPECT_THAT(on_sim, HasSubstr("step 5  loss "));
      for (const std::size_t whole : {0, 1}) {
        EXPECT_EQ(steps(over_nccl[2 * i + whole]->end(0)), on_sim)
            << strategies[i] << " " << precision << (whole == 1 ? " in one graph" : "");
      }
    }
  }
}

// Experts on two GPUs, with the exchange between graphs and in them: the bits of ranks that have
// all experts each.
TEST_F(NcclRanks, ShareExpertsWithoutChangingABit) {
  const auto experts = [&](const std::string& name, const std::string& graph,
                           const std::string& parallel) {
    return folder_.file(
        name + ".yaml",
        "schema: 1\nname: experts\nnumerics: [bf16]\nmodel: {pattern: \"*EME\", dropout: 0.1, "
        "moe: {experts: 4, capacity_factor: none, shared_hidden: 16}}\ntraining: {steps: 5, "
        "microbatches: 2, eval_every: 2, recapture_at: [3]}\nfsdp: {strategy: optim_grads}\n"
        "cuda_graph: {" +
            graph + "}\nparallel: {data: 2, " + parallel + "}\n");
  };
  std::vector<std::unique_ptr<Running>> over_nccl;
  int number = 0;
  for (const char* graph : {"modules: [attn, moe_router]", "modules: [attn, moe]", "impl: partial",
                            "impl: full_iteration"}) {
    over_nccl.push_back(running(steps_line(
        "cuda", experts(std::to_string(number++), graph, "expert: 2, transport: nccl"))));
  }
  const std::string on_sim = steps_of("sim", experts("all", "modules: [attn]", "transport: local"));
  EXPECT_THAT(on_sim, HasSubstr("step 5  loss "));
  for (const auto& one : over_nccl) EXPECT_EQ(steps(one->end(0)), on_sim);
}

// NCCL says so itself, once a communicator, where `doctor` says that it may.
TEST_F(NcclRanks, ExchangeByCopyEnginesWhereTheyMay) {
  const bool may =
      running("doctor")->end(0).find("exchanges     by copy engines") != std::string::npos;
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_FILE", (folder_ / "nccl.%p").c_str(), 1);
  steps_of("cuda", file("nccl", "optim_grads_params", "bf16"));
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE"}) ::unsetenv(name);
  int with = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    const bool is_log = entry.path().filename().string().starts_with("nccl.");
    with += is_log && slurp(entry.path().string()).find("Init CE") != std::string::npos;
  }
  EXPECT_EQ(with, may ? 2 : 0);
}

// On one machine, and on two: both of them are this one, and each process has a GPU of its own.
TEST_F(NcclRanks, AreStartedByALauncherAsWell) {
  const std::string scenario = file("auto", "optim_grads_params", "fp32");
  const std::string port = std::to_string(test::free_port());
  std::vector<std::unique_ptr<Running>> firsts, seconds;
  for (const char* here : {"2", "1"}) {
    for (const char* rank : {"0", "1"}) {
      const std::pair<const char*, const char*> variables[] = {{"RANK", rank},
                                                               {"LOCAL_RANK", rank},
                                                               {"WORLD_SIZE", "2"},
                                                               {"LOCAL_WORLD_SIZE", here},
                                                               {"MASTER_ADDR", "localhost"},
                                                               {"MASTER_PORT", port.c_str()}};
      for (const auto& [name, value] : variables) ::setenv(name, value, 1);
      (*rank == '0' ? firsts : seconds).push_back(running(steps_line("cuda", scenario)));
      for (const auto& [name, value] : variables) ::unsetenv(name);
    }
  }
  const std::string on_sim = steps_of("sim", file("local", "optim_grads_params", "fp32"));
  for (const auto& one : seconds) EXPECT_EQ(steps(one->end(0)), "");
  for (const auto& one : firsts) EXPECT_EQ(steps(one->end(0)), on_sim);
}

// One is killed, another is stuck.
TEST_F(NcclRanks, ReportARankThatIsLost) {
  struct Run {
    int signal, lost;
    std::unique_ptr<Running> process;
    std::vector<pid_t> ranks;
  };
  std::vector<Run> runs;
  for (const auto& [signal, lost] :
       {std::pair(SIGKILL, 0), std::pair(SIGSTOP, 1), std::pair(SIGKILL, 1)}) {
    const bool whole = signal == SIGKILL && lost == 1;
    runs.push_back(
        {signal,
         lost,
         running("train --device cuda --quiet --steps 1000000 --digest-every 1 --deadline 3 " +
                 file("nccl", "optim_grads_params", "fp32", whole)),
         {}});
  }
  for (Run& run : runs) {
    EXPECT_TRUE(
        comes_true([&] { return run.process->said().find("step 3 ") != std::string::npos; }));
    run.ranks = children_of(run.process->pid());
    ASSERT_EQ(run.ranks.size(), 2u);
    std::sort(run.ranks.begin(), run.ranks.end());
  }
  const auto start = std::chrono::steady_clock::now();
  for (const Run& run : runs) ::kill(run.ranks[static_cast<std::size_t>(run.lost)], run.signal);
  for (const Run& run : runs) {
    const std::string words = run.process->end(4);
    for (const pid_t rank : run.ranks) EXPECT_FALSE(lives(rank));
    EXPECT_THAT(words, HasSubstr("lockstep: rank " + std::to_string(1 - run.lost) + ": "));
    EXPECT_THAT(words, HasSubstr("waits in collective "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

// The checkpoint of a run that lost a rank continues as if nothing had happened.
TEST_F(NcclRanks, ResumeBitForBitAfterAKill) {
  const std::string line = "train --device cuda --quiet --steps 100 --deadline 3 " +
                           file("nccl", "optim_grads_params", "bf16") + " --checkpoint " +
                           (folder_ / "state") + " --checkpoint-every 1";
  const auto killed = running(line);
  const std::string rest = "train --device cuda --quiet --steps 100 --digest-every 50 ";
  const auto whole = running(rest + file("local", "optim_grads_params", "bf16"));
  EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(folder_ / "state"); }));
  const std::vector<pid_t> ranks = children_of(killed->pid());
  ASSERT_EQ(ranks.size(), 2u);
  ::kill(ranks[1], SIGKILL);
  killed->end(4);
  const auto resumed = running(rest + file("nccl", "optim_grads_params", "bf16") + " --resume " +
                               (folder_ / "state"));
  const auto last = [](const std::string& said) {
    const std::size_t at = said.rfind("step 100  loss ");
    EXPECT_NE(at, std::string::npos) << said;
    return said.substr(at, said.find('\n', at) - at);
  };
  EXPECT_EQ(last(resumed->end(0)), last(whole->end(0)));
}

TEST_F(NcclRanks, NameWhatIsWrong) {
  struct Planted {
    const char *fault, *judge;
    std::unique_ptr<Running> run = nullptr;
  };
  std::vector<Planted> all;
  all.push_back({"reduce-dropped", "gradient"});
  all.push_back({"a-rank-gathers-in-another-order", "collective"});
  all.push_back({"gather-not-awaited", "hazard"});
  const auto result = [&](const char* fault) { return folder_ / (std::string(fault) + ".json"); };
  for (Planted& one : all) {
    one.run =
        running(std::string("verify --device cuda --quiet --deadline 20 --plant ") + one.fault +
                " --json " + result(one.fault) + " " + file("nccl", "optim_grads_params", "fp32"));
  }
  for (const Planted& one : all) {
    one.run->end(1);
    EXPECT_EQ(boost::json::parse(slurp(result(one.fault))).at("results").at(0).at("judge"),
              one.judge);
  }
}

TEST_F(NcclRanks, AreTimed) {
  const Ran ran = run_lockstep(
      "bench --device cuda --section fsdp --ranks 2 --budget 0.01 --only \"params partial\" "
      "--json " +
      (folder_ / "times.json"));
  EXPECT_EQ(ran.status, 0) << ran.err;
  const auto times = boost::json::parse(slurp(folder_ / "times.json")).at("fsdp");
  EXPECT_EQ(times.at("transport"), "nccl");
  const auto& row = times.at("rows").at(0);
  EXPECT_GT(row.at("host_seconds").as_double(), 0);
  EXPECT_LE(row.at("host_seconds").as_double(), row.at("step_seconds").as_double());
  for (const char* exchange : {"gathers", "reductions"})
    EXPECT_GT(row.at(exchange).at("bare_seconds").as_double(), 0);
}

TEST_F(NcclRanks, AreTimedAsStagesAndAsOwnersOfExperts) {
  const std::string scenario = folder_.file(
      "layers.yaml",
      "schema: 1\nname: layers\nnumerics: [bf16]\nmodel: {pattern: \"M-*-M-\"}\n"
      "training: {steps: 5, microbatches: 4, in_flight: 2, eval_every: 2, recapture_at: [3]}\n");
  for (const char* section : {"pipeline", "experts"}) {
    const Ran ran =
        run_lockstep("bench --device cuda --ranks 2 --budget 0.01 --section " +
                     std::string(section) + " --json " + (folder_ / "times.json") + " " + scenario);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const auto times = boost::json::parse(slurp(folder_ / "times.json")).at(section);
    EXPECT_EQ(times.at("transport"), "nccl");
    const auto& rows = times.at("rows").as_array();
    EXPECT_EQ(rows.size(), 4u) << section;
    for (const auto& row : rows) {
      EXPECT_GT(row.at("step_seconds").as_double(), 0);
      if (section == std::string("pipeline"))
        EXPECT_TRUE(row.as_object().contains("above_ideal"));
      else
        EXPECT_GT(row.at("of_library").as_double(), 0);
    }
  }
}

}  // namespace
}  // namespace lockstep
