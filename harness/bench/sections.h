// The sections of `lockstep bench`: each prints its rows as they come, and returns them for --json.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>

#include "harness/base/options.h"
#include "harness/bench/steps.h"
#include "scenarios/scenario.h"

namespace lockstep {

// `only`: rows whose name holds this text. `budget`: seconds for each measurement.
boost::json::object bench_scenarios(const Scenario& scenario, double budget);
boost::json::object bench_kernels(const Scenario& scenario, const std::string& device,
                                  const std::string& only);
boost::json::object bench_steps(const Scenario& scenario, const std::string& device, double budget,
                                const std::string& only);
boost::json::object bench_offload(const Scenario& scenario, const std::string& device,
                                  double budget, const std::string& only);
boost::json::object bench_fsdp(const Scenario& scenario, const Options& options,
                               const std::string& device);
boost::json::object bench_schedules(double budget);
boost::json::object bench_checker(const Options& options, const std::string& device);
boost::json::object bench_dispatch(std::int64_t cases);

boost::json::object to_json(const StepTime& one);

}  // namespace lockstep
