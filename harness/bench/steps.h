// The time of a training step, eager and with graphs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/backend.h"
#include "scenarios/documents/documents.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct StepTime {
  std::string mode;
  std::int64_t steps = 0;
  std::vector<double> times;       // Seconds of each step.
  double median = 0, fastest = 0;  // Seconds.
  double host = 0;  // Median seconds of a step in which the host did not wait for the device.
  double ops = 0;   // Ops of a step, those inside graphs included.
  // Calls by which a step's work reached the device: ops, copies, fills, launches.
  double submissions = 0;
  double tokens = 0, flop = 0;  // Means per step: rows of packs, and model_flop().
  std::int64_t peak_bytes = 0;  // The most device memory that was allocated at once.
  // By how much less device memory is free behind the last step than before the run, as the driver
  // counts: graphs, streams and loaded kernels included.
  std::int64_t driver_bytes = 0;
  PlanCounts plans;     // How its products are computed.
  DeviceClocks clocks;  // After the last step.
  std::string not_run;  // Why there is no time.
};

std::string mode_name(GraphImpl impl);

// The documents of each microbatch.
std::vector<MicrobatchLengths> lengths_of(const StepData& step);

// The same scenario with graphs of this kind.
Scenario with_graph_impl(Scenario scenario, GraphImpl impl);
// Why it cannot run; "" if it can.
std::string why_not(const Scenario& scenario);

// The scenario's model by one rank, with this pack in each microbatch and with nothing that some
// steps only do.
Scenario with_one_pack(Scenario scenario, const MicrobatchLengths& pack);
// The same, with what needs graphs or needs them partial left out.
Scenario without_graphs(Scenario scenario);

// Steps for at least `budget` seconds after warm-up and captures.
StepTime time_steps(Scenario scenario, GraphImpl impl, const std::string& device_kind,
                    double budget);
// Adds the seconds of further steps of the same kind; `time` has some from then on.
void add_steps(StepTime& time, const std::vector<double>& seconds);

}  // namespace lockstep
