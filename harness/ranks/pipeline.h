// The cost of pipeline stages: the time of a step beside the work of each stage and beside a step
// whose transfers carry a byte, in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/nccl_communicator.h"
#include "harness/judge/local_ranks.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct PipelineTimes {
  std::string mode;  // "2 chunks partial"
  std::string not_run;
  std::int64_t stages = 0, chunks = 0, microbatches = 0;
  bool has_devices = false;  // Each stage has one. Otherwise they take turns, and nothing waits.
  double step = 0;           // Median seconds of a step; of the slowest stage, as all but `work`.
  double brief = 0;          // With a byte in place of each activation and gradient.
  std::vector<double> work;  // Each stage alone, which waits for no other.
  std::int64_t sends = 0;    // In a step, by the stage that sends most.
  double bytes = 0;
  ConnectedWays ways = {};  // The first stage's; zeros where the stages take turns.

  double most_work() const;
  // The time in which the stage with most work waits, as a share of that work, and what it is if
  // all stages have equal work and transfers take no time: (p - 1) / (m v).
  double bubble() const { return step / most_work() - 1; }
  double ideal() const;
  // The share of a step by which it is longer than with the ideal bubble.
  double above_ideal() const { return (step - most_work() * (1 + ideal())) / step; }
  static constexpr double kMostAboveIdeal = 0.05;
  double exposed() const { return step - brief; }  // Seconds.
};

// The scenario on so many stages of one rank each, with so many chunks.
Scenario in_stages(Scenario scenario, std::int64_t stages, std::int64_t chunks);

// {1, 2} chunks x {eager, partial} whose mode holds `only`, on the ranks of this process; rank 0
// calls `done`. At least `budget` seconds of steps for each time.
void time_pipeline(const Scenario& scenario, const std::string& device_kind,
                   const LocalRanks& ranks, const std::string& only, double budget,
                   const std::function<void(const PipelineTimes&)>& done);

}  // namespace lockstep
