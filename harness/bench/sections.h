// The sections of `lockstep bench`: each prints its rows as they come, and keeps them for --json.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>

#include "harness/base/options.h"
#include "harness/bench/rows.h"
#include "harness/bench/steps.h"
#include "scenarios/scenario.h"

namespace lockstep {

// `only`: rows whose name holds this text. `budget`: seconds for each measurement.
void bench_scenarios(const Scenario& scenario, double budget, BenchRows& rows);
void bench_kernels(const Scenario& scenario, const std::string& device, const std::string& only,
                   BenchRows& rows);
void bench_steps(const Scenario& scenario, const std::string& device, double budget,
                 const std::string& only, BenchRows& rows);
void bench_offload(const Scenario& scenario, const std::string& device, double budget,
                   const std::string& only, BenchRows& rows);
void bench_memory(const Scenario& scenario, const std::string& device, double budget,
                  const std::string& only, BenchRows& rows);
void bench_precisions(const Scenario& scenario, const std::string& only, BenchRows& rows);
void bench_packing(const Scenario& scenario, const std::string& device, double budget,
                   const std::string& only, BenchRows& rows);
void bench_schedules(double budget, BenchRows& rows);
void bench_checker(const Options& options, const std::string& device, BenchRows& rows);
void bench_dispatch(std::int64_t cases, BenchRows& rows);

boost::json::object to_json(const StepTime& one);

}  // namespace lockstep
