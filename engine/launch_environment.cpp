#include "engine/launch_environment.h"

#include <array>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace lockstep {
namespace {

// The variables of one launcher. Where there are several for the size or the job, the first that is set counts.
struct Launcher {
  const char* name;
  const char* rank;
  std::array<const char*, 2> size;
  const char* local_rank;  // The rank itself where it is not set.
  std::array<const char*, 3> job;
};

// In the order of asking: torchrun may run under Slurm, and Slurm may start what Open MPI or PMI then describe.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", {"WORLD_SIZE"}, "LOCAL_RANK", {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, "OMPI_COMM_WORLD_LOCAL_RANK", {"PMIX_NAMESPACE"}},
    {"PMI", "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID", {"PMI_JOBID", "HYDRA_JOB_ID"}},
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

int number(const char* name, const char* text) {
  int value = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) {
    throw std::runtime_error(std::string(name) + " is no number of a rank: " + text);
  }
  return value;
}

// The first of `names` that is set, or null.
template <std::size_t count>
const char* first_set(const std::array<const char*, count>& names, const Environment& environment) {
  for (const char* name : names) {
    if (name && environment(name)) return name;
  }
  return nullptr;
}

}  // namespace

std::optional<LaunchedRank> launched_rank(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    const char* rank = environment(launcher.rank);
    const char* size = first_set(launcher.size, environment);
    if (!rank || !size) continue;
    LaunchedRank found;
    found.launcher = launcher.name;
    found.rank = number(launcher.rank, rank);
    found.size = number(size, environment(size));
    if (found.size == 1) return {};
    if (found.rank >= found.size) {
      throw std::runtime_error(std::string(launcher.rank) + " is " + rank + ", but " + size + " is " +
                               environment(size));
    }
    const char* local = environment(launcher.local_rank);
    found.local_rank = local ? number(launcher.local_rank, local) : found.rank;
    for (const char* name : launcher.job) {
      if (const char* part = name ? environment(name) : nullptr)
        found.job += (found.job.empty() ? "" : "-") + std::string(part);
    }
    return found;
  }
  return {};
}

}  // namespace lockstep
