// Where the ranks of a run live: in threads of this process, in processes that it starts, or in
// processes of a launcher, of which this is one.
#pragma once

#include <functional>
#include <string>

#include "engine/rendezvous/shared_segment.h"
#include "harness/base/errors.h"
#include "harness/base/options.h"
#include "harness/base/run_folder.h"
#include "harness/judge/local_ranks.h"
#include "scenarios/scenario.h"

namespace lockstep {

// Ranks notice within the deadline of a collective that another failed; this comes on top.
inline constexpr double kNoticeSeconds = 5;

struct LaunchOptions {
  std::string device = "sim";
  double deadline_s = 60;  // Within which every rank comes to a collective.
  // A path where launched processes meet; "": one that the launcher's variables give.
  std::string meeting;
};

// Returns the options from Options::launched().
LaunchOptions launch_options(const Options& options, const std::string& device);

// Whether the ranks of the run are processes with a GPU each: if requested, or if a launcher's
// processes use GPUs.
bool over_nccl(const Scenario& scenario, const std::string& device, bool by_launcher);

// Fixes NCCL's algorithm and protocol, hence the order of its sums, which it would otherwise choose
// by size. NCCL reads them when ranks join. A value of the user is replaced, because with another
// order equal runs would have other bits; `tells`: with a line on stderr.
void pin_sums(bool tells);

// Runs `body` in each process that has ranks. Returns the status of this process, or if it started
// the others, of all: a rank's own failure takes precedence over failures that it caused in others,
// and a killed rank counts as a hang. Exceptions are reported on stderr.
ExitStatus launch(const Scenario& scenario, const LaunchOptions& options,
                  const std::function<ExitStatus(const LocalRanks&)>& body);

// The place where the ranks of a run meet whose processes this one started, by a folder of the run.
SharedSegment meeting_in(const RunFolder& folder, const Scenario& scenario);
// Tells the ranks that meet there that one of them is dead, so that none waits for it.
void tell_lost(int rank, const RunFolder& folder, const Scenario& scenario);
// Runs `body` as one of these ranks, in a process of its own; over NCCL only if the scenario says
// so. Exceptions are reported on stderr.
ExitStatus run_as_rank(int rank, const std::string& folder, const Scenario& scenario,
                       double deadline_s, const std::function<ExitStatus(const LocalRanks&)>& body);

// The end of a rank's process.
struct RankEnd {
  int signal = 0;        // The signal that killed it, 0 for none.
  int status = 0;        // Exit status.
  bool stopped = false;  // By this process: it had not noticed that another failed.
};

// launch() with processes that this one starts, under any launcher. `ended` is called at the end of
// each process; it may be empty.
using RankEnded = std::function<void(int rank, const RankEnd&)>;
ExitStatus launch_here(const Scenario& scenario, double deadline_s, const RunFolder& folder,
                       const std::function<ExitStatus(const LocalRanks&)>& body,
                       const RankEnded& ended = {});

}  // namespace lockstep
