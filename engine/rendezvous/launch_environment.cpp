#include "engine/rendezvous/launch_environment.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace lockstep {
namespace {

// The variables of one launcher. If it has several for the size or the job, the first that is set
// counts.
struct Launcher {
  const char* name;
  const char* rank;
  std::array<const char*, 2> size;
  const char* local_rank;  // The rank itself is used if it is not set.
  const char* local_size;  // The number of ranks on this machine; null if `nodes` gives the number
                           // of machines.
  std::array<const char*, 2> nodes;
  std::array<const char*, 3> job;
};

// Launchers are asked in this order: torchrun may run under Slurm, and Slurm may start ranks that
// Open MPI or PMI describe.
constexpr Launcher kLaunchers[] = {
    {"torchrun",
     "RANK",
     {"WORLD_SIZE"},
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {},
     {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_SIZE"},
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {},
     {"PMIX_NAMESPACE"}},
    {"PMI",
     "PMI_RANK",
     {"PMI_SIZE"},
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     {},
     {"PMI_JOBID", "HYDRA_JOB_ID"}},
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     "SLURM_LOCALID",
     nullptr,
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

// Slurm's steps of a shell and of a batch script are numbered from the end of 32 bits.
std::int64_t whole_number(const char* name, const char* text) {
  std::int64_t value = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) {
    throw std::runtime_error(std::string(name) + " is no number: " + text);
  }
  return value;
}

int number(const char* name, const char* text) {
  const std::int64_t value = whole_number(name, text);
  if (value > std::numeric_limits<int>::max()) {
    throw std::runtime_error(std::string(name) + " is no number of a rank: " + text);
  }
  return static_cast<int>(value);
}

// The first of `names` that is set, or null.
template <std::size_t count>
const char* first_set(const std::array<const char*, count>& names, const Environment& environment) {
  for (const char* name : names) {
    if (name && environment(name)) return name;
  }
  return nullptr;
}

std::optional<bool> one_machine(const Launcher& launcher, int size,
                                const Environment& environment) {
  if (launcher.local_size != nullptr) {
    const char* local = environment(launcher.local_size);
    if (!local) return {};
    return number(launcher.local_size, local) == size;
  }
  const char* nodes = first_set(launcher.nodes, environment);
  if (!nodes) return {};
  return number(nodes, environment(nodes)) == 1;
}

// The agents of torchrun may listen at MASTER_PORT themselves; then the next port is used.
void find_rank_0(LaunchedRank& found, const Environment& environment) {
  const char* const host = environment("MASTER_ADDR");
  const char* const port = environment("MASTER_PORT");
  if (host && port) {
    const char* const agent = environment("TORCHELASTIC_USE_AGENT_STORE");
    found.host = host;
    found.port = number("MASTER_PORT", port) + (agent && std::strcmp(agent, "True") == 0 ? 1 : 0);
    if (found.port < 1 || found.port > 65535)
      throw std::runtime_error(std::string("MASTER_PORT is no port: ") + port);
    return;
  }
  const char* const list =
      first_set(std::array{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}, environment);
  const char* const job = environment("SLURM_JOB_ID");
  if (found.launcher != "Slurm" || !list || !job) return;
  const char* const step = environment("SLURM_STEP_ID");
  found.host = first_host(environment(list));
  const std::int64_t behind = step ? whole_number("SLURM_STEP_ID", step) : 0;
  found.port = static_cast<int>(
      15000 + (whole_number("SLURM_JOB_ID", job) % 10000 + behind % 10000) % 10000);
}

}  // namespace

std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of("-,]", bracket), behind = list.find(']', bracket);
  if (behind == std::string::npos) throw std::runtime_error("no list of nodes: " + list);
  const std::string rest = list.substr(behind + 1, list.find(',', behind) - behind - 1);
  return first_host(list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) + rest);
}

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
      throw std::runtime_error(std::string(launcher.rank) + " is " + rank + ", but " + size +
                               " is " + environment(size));
    }
    found.one_machine = one_machine(launcher, found.size, environment);
    find_rank_0(found, environment);
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
