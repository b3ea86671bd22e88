// The sections of `lockstep bench` that measure several ranks.
#pragma once

#include <string>

#include "harness/base/options.h"
#include "harness/bench/rows.h"
#include "scenarios/scenario.h"

namespace lockstep {

void bench_fsdp(const Scenario& scenario, const Options& options, const std::string& device,
                BenchRows& rows);
void bench_pipeline(const Scenario& scenario, const Options& options, const std::string& device,
                    BenchRows& rows);
void bench_experts(const Scenario& scenario, const Options& options, const std::string& device,
                   BenchRows& rows);

}  // namespace lockstep
