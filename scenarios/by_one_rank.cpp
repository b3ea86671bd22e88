#include "scenarios/by_one_rank.h"

#include <algorithm>

#include "scenarios/pass_order.h"

namespace lockstep {

Scenario by_one_rank(Scenario scenario) {
  Scenario::Training& training = scenario.training;
  training.microbatches *= scenario.parallel.data;
  for (Scenario::MicrobatchChange& change : training.change_microbatches_at) {
    change.microbatches *= scenario.parallel.data;
  }
  scenario.parallel = {};
  scenario.fsdp = {};
  scenario.fp8.param_gather = false;
  return scenario;
}

Scenario by_ranks(Scenario scenario, std::int64_t ranks) {
  Scenario::Training& training = scenario.training;
  const auto share = [&](std::int64_t count) { return count * scenario.parallel.data / ranks; };
  training.microbatches = share(training.microbatches);
  std::int64_t fewest = training.microbatches;
  for (Scenario::MicrobatchChange& change : training.change_microbatches_at) {
    change.microbatches = share(change.microbatches);
    fewest = std::min(fewest, change.microbatches);
  }
  training.in_flight =
      depth_follows(scenario) ? scheduled_depth(scenario) : std::min(training.in_flight, fewest);
  training.resume_at.clear();
  scenario.parallel.data = ranks;
  return scenario;
}

bool divides_microbatches(const Scenario& scenario, std::int64_t ranks) {
  const Scenario::Training& training = scenario.training;
  const auto divides = [&](std::int64_t count) {
    return count * scenario.parallel.data % ranks == 0;
  };
  return divides(training.microbatches) &&
         std::all_of(training.change_microbatches_at.begin(), training.change_microbatches_at.end(),
                     [&](const auto& change) { return divides(change.microbatches); });
}

}  // namespace lockstep
