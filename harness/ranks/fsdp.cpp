#include "harness/ranks/fsdp.h"

#include <vector>

#include "engine/train/trainer.h"
#include "harness/bench/host_time.h"
#include "harness/bench/steps.h"
#include "harness/case/schedules.h"
#include "harness/ranks/exchanges.h"
#include "harness/ranks/rank_steps.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

Scenario of_mode(Scenario scenario, Sharding strategy, GraphImpl impl) {
  scenario.fsdp.strategy = strategy;
  return with_graph_impl(std::move(scenario), impl);
}

FsdpTimes time_mode(const Scenario& scenario, Device& device, Communicator& communicator,
                    HostTime& host, double budget) {
  FsdpTimes times;
  const auto data = open_data(scenario);
  BackendCommunicator* const library = library_of(communicator);
  BackendCommunicator::Spent spent;
  ExchangeCalls step;
  {
    ListingCommunicator listing(communicator);
    Trainer trainer(device, scenario, *data,
                    {.dry_run_ledger = false, .listener = nullptr, .communicator = &listing});
    for (std::int64_t i = 0; i < scenario.cuda_graph.warmup_steps; ++i) trainer.step();
    const RankSteps with = time_rank_steps(trainer, communicator, host, budget);
    times.step = with.step;
    if (library != nullptr) times.host = with.host;
    listing.calls.clear();
    if (library != nullptr) library->measure(true);
    trainer.step();
    if (library != nullptr) library->measure(false), spent = library->take_spent();
    step = listing.calls;
    listing.silent = true;
    times.compute = time_rank_steps(trainer, communicator, host, budget).step;
  }
  times.gathers = exchange_times(of_kind(step, true), device, communicator, library);
  times.reductions = exchange_times(of_kind(step, false), device, communicator, library);
  if (library != nullptr) {
    times.gathers.in_step = largest(spent.gathers, communicator);
    times.reductions.in_step = largest(spent.others, communicator);
  }
  times.communication = library != nullptr ? seconds_of(step, device, communicator, *library)
                                           : seconds_of(step, device, communicator);
  return times;
}

}  // namespace

void time_fsdp(const Scenario& scenario, const std::string& device_kind, const LocalRanks& ranks,
               const std::string& only, double budget,
               const std::function<void(const FsdpTimes&)>& done) {
  HostTime host;
  Device device(
      open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed), ranks.gpu),
      &host);
  ranks.run(device, [&](Communicator& communicator) {
    for (const Sharding strategy : {Sharding::no_shard, Sharding::optim, Sharding::optim_grads,
                                    Sharding::optim_grads_params}) {
      for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial}) {
        const std::string mode =
            word(strategy) +
            (impl == GraphImpl::none ? " eager" : " " + std::string(to_text(impl)));
        if (mode.find(only) == std::string::npos) continue;
        const Scenario one = of_mode(scenario, strategy, impl);
        FsdpTimes times;
        std::vector<ScenarioError> errors = check_legality(one);
        if (errors.empty()) errors = check_built(one);
        if (errors.empty()) {
          times = time_mode(one, device, communicator, host, budget);
        } else {
          times.not_run = errors.front().text();
        }
        times.mode = mode;
        if (communicator.rank() == 0) done(times);
      }
    }
  });
}

}  // namespace lockstep
