// This process's rank and the number of ranks, from the environment that its launcher set. No
// launcher's library is linked.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct LaunchedRank {
  int rank = 0, size = 1;
  int local_rank = 0;  // Among the processes of this machine.
  // Whether all processes are on this machine, if the launcher tells.
  std::optional<bool> one_machine = {};
  std::string launcher;  // "torchrun", "Open MPI", "Slurm", "PMI".
  // Equal on all ranks of a run, and different in other runs as far as the launcher tells.
  std::string job;
  // The address of rank 0, as far as the launcher tells: MASTER_ADDR and MASTER_PORT, else with
  // Slurm the first node and a port derived from the job. The host is "" if it is unknown.
  std::string host = {};
  int port = 0;
};

// A variable's value, or null: std::getenv.
using Environment = std::function<const char*(const char* name)>;

// Returns nothing if there is no launcher, or if it started one process. Throws std::runtime_error
// for variables that contradict each other. docs/ranks.md has the table.
std::optional<LaunchedRank> launched_rank(const Environment& environment);

// The first of a list as Slurm writes them: "rack1-n05" of "rack1-n[05-07,11],login".
std::string first_host(const std::string& list);

}  // namespace lockstep
