#include "engine/rendezvous/launch_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

namespace lockstep {
namespace {

std::optional<LaunchedRank> launched(const std::map<std::string, std::string>& variables) {
  return launched_rank([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void expect_launched(const std::map<std::string, std::string>& variables,
                     const std::string& launcher, const std::string& job) {
  const auto found = launched(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, launcher);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->job, job);
}

// The variables that each launcher sets about machines, and where it says that rank 0 is.
TEST(LaunchEnvironment, KnowsWhereRanksMeet) {
  const auto where = [](const std::map<std::string, std::string>& variables) {
    const auto me = launched(variables);
    const std::string machines = !me->one_machine   ? "unknown "
                                 : *me->one_machine ? "one "
                                                    : "several ";
    return machines + me->host + ":" + std::to_string(me->port);
  };
  const std::map<std::string, std::string> master{{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
  const auto with = [&](std::map<std::string, std::string> variables, bool with_master = false) {
    if (with_master) variables.insert(master.begin(), master.end());
    return where(variables);
  };
  EXPECT_EQ(with({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), "unknown :0");
  EXPECT_EQ(with({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, true), "unknown n1:29500");
  EXPECT_EQ(with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "4"}}, true),
            "one n1:29500");
  EXPECT_EQ(with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}}, true),
            "several n1:29500");
  EXPECT_EQ(
      with({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}, true),
      "unknown n1:29501");
  EXPECT_EQ(with({{"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "4"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
            "several :0");
  EXPECT_EQ(with({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "4"}}, true),
            "one n1:29500");
  std::map<std::string, std::string> slurm{
      {"SLURM_PROCID", "1"},  {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "420007"},
      {"SLURM_STEP_ID", "2"}, {"SLURM_NNODES", "2"}, {"SLURM_JOB_NODELIST", "gpu[07-09],x"}};
  EXPECT_EQ(with(slurm), "several gpu07:15009");
  EXPECT_EQ(with(slurm, true), "several n1:29500");
  slurm["SLURM_STEP_ID"] = "4294967290";  // For a shell that salloc has opened.
  EXPECT_EQ(with(slurm), "several gpu07:22297");
  slurm["SLURM_STEP_ID"] = "2";
  slurm["SLURM_STEP_NUM_NODES"] = "1";
  slurm["SLURM_STEP_NODELIST"] = "gpu09";
  EXPECT_EQ(with(slurm), "one gpu09:15009");
  EXPECT_THROW(
      launched(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
      std::runtime_error);
}

TEST(LaunchEnvironment, ReadsListsOfNodes) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[3-5]"), "n3");
  EXPECT_EQ(first_host("n[007,9],m"), "n007");
  EXPECT_EQ(first_host("rack1-n[05-07,11].cluster,login"), "rack1-n05.cluster");
  EXPECT_EQ(first_host("r[1-2]n[08-09]"), "r1n08");
  EXPECT_EQ(first_host("login,n[1-2]"), "login");
  EXPECT_THROW(first_host("n[1-2"), std::runtime_error);
}

TEST(LaunchEnvironment, KnowsWhoStartsRanks) {
  expect_launched({{"RANK", "5"},
                   {"WORLD_SIZE", "8"},
                   {"LOCAL_RANK", "1"},
                   {"MASTER_ADDR", "a"},
                   {"MASTER_PORT", "2"}},
                  "torchrun", "a-2");
  expect_launched({{"OMPI_COMM_WORLD_RANK", "5"},
                   {"OMPI_COMM_WORLD_SIZE", "8"},
                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                   {"PMIX_NAMESPACE", "n"}},
                  "Open MPI", "n");
  expect_launched({{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}}, "PMI", "");
  expect_launched({{"SLURM_PROCID", "5"},
                   {"SLURM_NTASKS", "16"},
                   {"SLURM_STEP_NUM_TASKS", "8"},
                   {"SLURM_LOCALID", "1"},
                   {"SLURM_JOB_ID", "7"},
                   {"SLURM_STEP_ID", "3"}},
                  "Slurm", "7-3");
}

TEST(LaunchEnvironment, AsksTheInnermostLauncherFirst) {
  std::map<std::string, std::string> both{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  EXPECT_EQ(launched(both)->launcher, "Slurm");
  both.insert({{"RANK", "3"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(launched(both)->rank, 3);
  EXPECT_EQ(launched(both)->local_rank, 3);
}

TEST(LaunchEnvironment, IsSilentAboutOneProcess) {
  EXPECT_FALSE(launched({}));
  EXPECT_FALSE(launched({{"RANK", "0"}}));
  EXPECT_FALSE(launched({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
}

TEST(LaunchEnvironment, RefusesWhatContradictsItself) {
  EXPECT_THROW(launched({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), std::runtime_error);
  EXPECT_THROW(launched({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), std::runtime_error);
  EXPECT_THROW(launched({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), std::runtime_error);
  EXPECT_THROW(launched({{"RANK", "0"}, {"WORLD_SIZE", ""}}), std::runtime_error);
}

}  // namespace
}  // namespace lockstep
