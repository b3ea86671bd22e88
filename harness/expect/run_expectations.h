// The counters that a run must show, given what the oracle and the checker saw of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/expect/expectations.h"
#include "oracle/oracle.h"

namespace lockstep {

// The findings of the checker in a run.
struct CheckerEvidence {
  std::int64_t ranks = 1;     // Ranks that it watched.
  std::int64_t launches = 0;  // Graph launches of all these ranks.
  // Sizes of graphs in order of capture, by rank.
  std::map<int, std::vector<std::int64_t>> captured_calls = {};
};

struct RunEvidence {
  bool explored = false;  // All schedules ran by tags.
  // Present if a reference judges each step.
  std::optional<std::span<const oracle::StepResult>> oracle_steps = {};
  std::optional<CheckerEvidence> checker = {};
};

// Includes expectations().
std::vector<Expectation> expectations_of_run(const Scenario& scenario, const DataSource& data,
                                             const RunEvidence& evidence);

struct RanksOfProcess {
  std::int64_t first = 0, count = 1;
};
// "" or the first delay of checker.delays for these ranks that delayed no call, as a sentence.
std::string idle_delay(const Scenario& scenario, const std::vector<bool>& delayed,
                       const RanksOfProcess& ranks);

}  // namespace lockstep
