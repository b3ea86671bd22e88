#include "harness/ranks/rank_steps.h"

#include <algorithm>
#include <utility>

#include "harness/base/stopwatch.h"
#include "harness/bench/median.h"
#include "harness/ranks/exchanges.h"

namespace lockstep {
namespace {

// After the scenario's own warm-up: captures and first touches are over.
constexpr int kWarmSteps = 2;
constexpr int kFewestSteps = 4;

}  // namespace

RankSteps time_rank_steps(Trainer& trainer, Communicator& communicator, HostTime& host,
                          double budget) {
  for (int i = 0; i < kWarmSteps; ++i) trainer.step();
  std::vector<double> times, hosts;
  std::vector<std::vector<double>> of_ranks(static_cast<std::size_t>(communicator.size()));
  double all = 0;
  while (static_cast<int>(times.size()) < kFewestSteps || all < budget) {
    communicator.barrier();
    host.begin();
    const Stopwatch watch;
    trainer.step();
    const double step = watch.seconds();
    hosts.push_back(largest(step - host.waited(), communicator));
    const std::vector<double> steps = values_of_ranks(step, communicator);
    for (std::size_t rank = 0; rank < steps.size(); ++rank) of_ranks[rank].push_back(steps[rank]);
    times.push_back(*std::ranges::max_element(steps));  // Equal on all ranks: all end together.
    all += times.back();
  }
  RankSteps found{median(std::move(times)), median(std::move(hosts)), {}};
  for (std::vector<double>& one : of_ranks) found.of_ranks.push_back(median(std::move(one)));
  return found;
}

}  // namespace lockstep
