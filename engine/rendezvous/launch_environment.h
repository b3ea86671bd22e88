// Which rank of how many this process is, as whoever started it says in the environment. Nothing is
// linked.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

struct LaunchedRank {
  int rank = 0, size = 1;
  int local_rank = 0;  // Among the processes of this machine.
  // Whether all processes are on this one, where the launcher says so.
  std::optional<bool> one_machine = {};
  std::string launcher;  // "torchrun", "Open MPI", "Slurm", "PMI".
  // Equal on all ranks of a run, and another for other runs as far as the launcher tells.
  std::string job;
  // The address of rank 0, as far as the launcher tells: MASTER_ADDR and MASTER_PORT, else with
  // Slurm the first node and a port that follows from the job. The host is "" where nothing tells.
  std::string host = {};
  int port = 0;
};

// A variable's value, or null: std::getenv.
using Environment = std::function<const char*(const char* name)>;

// Absent if no launcher says so, or if it started one process. Throws std::runtime_error for
// variables that contradict each other. docs/ranks.md has the table.
std::optional<LaunchedRank> launched_rank(const Environment& environment);

// The first of a list as Slurm writes them: "rack1-n05" of "rack1-n[05-07,11],login".
std::string first_host(const std::string& list);

}  // namespace lockstep
