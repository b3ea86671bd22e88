// The smallest scenario that still fails for the same reason: greedy over the rules of
// shrink_rules.h to a fixed point, within a budget of runs and seconds. Every candidate is legal
// before it runs, and runs in a worker. None asks for what it forbids itself (asked_in_vain),
// unless the scenario as given does.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/case/verdict.h"
#include "harness/judge/runner.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct ShrinkOptions {
  RunOptions run;
  double seconds = 60;  // For all of it, the first run and the last included.
  std::int64_t runs = 5000;
  int tries = 8;          // Schedules (sim) or repetitions (cuda) that a racy candidate gets.
  double timeout_s = 20;  // The limit of one run.
  bool documents_first = false;  // Where a run is dear: Early::documents of rules.h.
  // Names the smallest scenario, once the reason is known; none: reason_name.
  std::function<std::string(const CaseResult&)> name;
  std::function<void(const std::string&)> progress;
  // Runs a case; none: run_in_worker. Tests put a bug of their own here.
  std::function<CaseResult(const Scenario&, const RunOptions&, double timeout_s)> runner;
  // Runs the smallest once more, with what `runner` leaves out to be quick; none: it leaves out
  // nothing. It must fail for the same reason, or the scenario as given stands.
  std::function<CaseResult(const Scenario&)> confirmer;
};

// Results of other values of one key, with everything else as in the smallest scenario.
struct Freedom {
  std::string key;
  std::vector<std::string> fails;  // Values with which it fails for the same reason.
  std::vector<std::string> other;  // Values with which it holds, or fails otherwise.
};

struct Shrunk {
  CaseResult first;   // The scenario as given; nothing else is set if it does not fail, or was not
                      // judged in time.
  Scenario scenario;  // The smallest.
  CaseResult result;  // Its result, with token and replay line.
  RunOptions run;     // How it was shrunk: on the simulator if the failure shows there too.
  int failed = 1, of = 1;  // k of n schedules or repetitions of the smallest fail for this reason.
  std::vector<Freedom> freedoms;
  std::int64_t runs = 0;
  double seconds = 0;
  bool finished = false;     // No rule finds anything smaller; else the budget ended first, or
  bool interrupted = false;  // a signal came.
  bool begun = false;        // The first run came to its end.
};

Shrunk shrink(const Scenario& scenario, const ShrinkOptions& options);

// Other values of the keys that matter in `scenario`, a few of each, for Freedom.
struct Variation {
  std::string key, value;
  Scenario scenario;
};
std::vector<Variation> variations(const Scenario& scenario);

// The smallest scenario as a file: comments say how it failed, how to replay it, and what may vary
// freely.
std::string shrunk_yaml(const Shrunk& shrunk);
// One sentence for `description`.
std::string shrunk_description(const CaseResult& result);

}  // namespace lockstep
