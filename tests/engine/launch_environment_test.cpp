#include "engine/launch_environment.h"

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

void expect_launched(const std::map<std::string, std::string>& variables, const std::string& launcher,
                     const std::string& job) {
  const auto found = launched(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, launcher);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->job, job);
}

TEST(LaunchEnvironment, KnowsWhoStartsRanks) {
  expect_launched({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "2"}},
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
