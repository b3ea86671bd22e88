// Where the ranks of a run are: threads of this process, processes that it starts, or processes
// that a launcher started and of which this is one.
#pragma once

#include <functional>
#include <string>

#include "harness/base/errors.h"
#include "harness/base/options.h"
#include "harness/base/run_folder.h"
#include "harness/judge/local_ranks.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct LaunchOptions {
  std::string device = "sim";
  double deadline_s = 60;  // Within which every rank comes to a collective.
  // A path where launched processes meet; "": one that the launcher's variables give.
  std::string meeting;
};

// For Options::launched().
LaunchOptions launch_options(const Options& options, const std::string& device);

// Whether the ranks of the run are processes with a GPU each: asked for, or what a launcher's are
// on GPUs.
bool over_nccl(const Scenario& scenario, const std::string& device, bool by_launcher);

// `body` in each process that has ranks. The status is that of this process, or where it started
// the others, of all: a failure of one rank goes before what that made of the others, and a rank
// that was killed is a hang. What they throw is said on stderr.
ExitStatus launch(const Scenario& scenario, const LaunchOptions& options,
                  const std::function<ExitStatus(const LocalRanks&)>& body);

// How the process of a rank ended.
struct RankEnd {
  int signal = 0;        // That killed it, 0 for none.
  int status = 0;        // Exit status.
  bool stopped = false;  // By this process: it had not noticed that another failed.
};

// The same with processes that this one starts, whatever launcher there is; over NCCL only if the
// scenario says so. `ended` is told of each process when it has; it may be empty.
using RankEnded = std::function<void(int rank, const RankEnd&)>;
ExitStatus launch_here(const Scenario& scenario, double deadline_s, const RunFolder& folder,
                       const std::function<ExitStatus(const LocalRanks&)>& body,
                       const RankEnded& ended = {});

}  // namespace lockstep
