// What the sections of several ranks share: where the ranks run, and how their rows come back.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "harness/base/options.h"
#include "harness/bench/rows.h"
#include "harness/judge/local_ranks.h"
#include "harness/ranks/exchanges.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct RanksSection {
  const char* name;       // The section's; its rows lie in /NAME/rows.
  std::size_t width = 0;  // A row's name, for further lines.
};

// --ranks, or as many as there are GPUs, at least 2.
std::int64_t ranks_asked_for(const Options& options, const std::string& device);

using AddRow = std::function<void(const boost::json::object&)>;
// Calls `measure` for the ranks of each process: one GPU a rank over NCCL where there are as many,
// else virtual ranks. This process opens no GPU: those of ranks do. Throws WorldError if a rank
// fails.
void bench_ranks(
    const RanksSection& section, const Scenario& scenario, const Options& options,
    const std::string& device, BenchRows& rows,
    const std::function<void(const Scenario&, const LocalRanks&, const AddRow&)>& measure);

boost::json::object to_json(const ExchangeTimes& times);
void print_exchange(const char* name, const ExchangeTimes& times);

}  // namespace lockstep
