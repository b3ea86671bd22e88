// The section of `lockstep bench --peer`.
#pragma once

#include <string>

#include "harness/bench/rows.h"
#include "scenarios/scenario.h"

namespace lockstep {

// `python`: the program that has PyTorch. `budget`: seconds for each mode of either side.
void bench_peer(const Scenario& scenario, const std::string& device, const std::string& python,
                double budget, BenchRows& rows);

}  // namespace lockstep
