// The cost of experts over ranks: how long compute waits in a step for the exchange of rows, and
// the rate of that exchange beside bare calls of the library, in the same run.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "harness/judge/local_ranks.h"
#include "harness/ranks/exchanges.h"
#include "scenarios/scenario.h"

namespace lockstep {

struct ExpertTimes {
  std::string mode;  // "eager", "partial", "captured", "full_iteration"
  std::string not_run;
  double step = 0;  // Median seconds of a step; of the slowest rank, as all here.
  // Seconds of a step in which compute waits for the exchange, and for the numbers of rows that
  // ranks tell each other before. Absent in graphs, and where ranks have no device of their own.
  std::optional<double> exposed;
  ExchangeTimes exchange;  // Without these numbers.

  std::optional<double> exposed_share() const {
    if (!exposed) return {};
    return *exposed / step;
  }
  // The exchange by the engine as a share of the rate of bare calls. Absent without a library.
  std::optional<double> of_library() const {
    if (!exchange.library || exchange.calls == 0) return {};
    return *exchange.library / exchange.engine;
  }
  static constexpr double kLeastOfLibrary = 0.85;
};

// The scenario with its experts over so many ranks. A model without experts has some, as wide as
// half of the MLP, in place of each MLP.
Scenario with_experts_over(Scenario scenario, std::int64_t ranks);

// Eager, graphs of all but the experts, of whole layers and of the whole step, whose mode holds
// `only`, on the ranks of this process; rank 0 calls `done`. At least `budget` seconds of steps for
// each time.
void time_experts(const Scenario& scenario, const std::string& device_kind, const LocalRanks& ranks,
                  const std::string& only, double budget,
                  const std::function<void(const ExpertTimes&)>& done);

}  // namespace lockstep
