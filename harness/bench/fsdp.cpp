#include "harness/bench/fsdp.h"

#include <algorithm>
#include <vector>

#include "engine/train/trainer.h"
#include "harness/base/stopwatch.h"
#include "harness/bench/exchanges.h"
#include "harness/bench/host_time.h"
#include "harness/bench/median.h"
#include "harness/bench/steps.h"
#include "harness/case/schedules.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

// After the scenario's own warm-up: captures and first touches are over.
constexpr int kWarmSteps = 2;
constexpr int kFewestSteps = 4;

using Calls = std::vector<ListingCommunicator::Call>;

Scenario of_mode(Scenario scenario, Sharding strategy, GraphImpl impl) {
  scenario.fsdp.strategy = strategy;
  return with_graph_impl(std::move(scenario), impl);
}

struct StepSeconds {
  double step, host;
};

StepSeconds step_seconds(Trainer& trainer, Communicator& communicator, HostTime& host,
                         double budget) {
  for (int i = 0; i < kWarmSteps; ++i) trainer.step();
  std::vector<double> times, hosts;
  double all = 0;
  while (static_cast<int>(times.size()) < kFewestSteps || all < budget) {
    communicator.barrier();
    host.begin();
    const Stopwatch watch;
    trainer.step();
    const double step = watch.seconds();
    hosts.push_back(largest(step - host.waited(), communicator));
    times.push_back(largest(step, communicator));  // Equal on all ranks, so all end together.
    all += times.back();
  }
  return {.step = median(std::move(times)), .host = median(std::move(hosts))};
}

Calls of_kind(const Calls& calls, bool gathers) {
  Calls some;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(some), [=](const auto& call) {
    return (call.kind == CollectiveKind::all_gather) == gathers;
  });
  return some;
}

ExchangeTimes exchange_times(const Calls& calls, Device& device, Communicator& communicator,
                             BackendCommunicator* library) {
  ExchangeTimes times;
  times.calls = std::ssize(calls);
  if (calls.empty()) return times;
  for (const auto& call : calls) times.bytes += bytes_sent(call, communicator.size());
  times.engine = seconds_of(calls, device, communicator);
  if (library != nullptr) times.library = seconds_of(calls, device, communicator, *library);
  return times;
}

FsdpTimes time_mode(const Scenario& scenario, Device& device, Communicator& communicator,
                    HostTime& host, double budget) {
  FsdpTimes times;
  const auto data = open_data(scenario);
  BackendCommunicator* const library = library_of(communicator);
  BackendCommunicator::Spent spent;
  Calls step;
  {
    ListingCommunicator listing(communicator);
    Trainer trainer(device, scenario, *data,
                    {.dry_run_ledger = false, .listener = nullptr, .communicator = &listing});
    for (std::int64_t i = 0; i < scenario.cuda_graph.warmup_steps; ++i) trainer.step();
    const StepSeconds with = step_seconds(trainer, communicator, host, budget);
    times.step = with.step;
    if (library != nullptr) times.host = with.host;
    listing.calls.clear();
    if (library != nullptr) library->measure(true);
    trainer.step();
    if (library != nullptr) library->measure(false), spent = library->take_spent();
    step = listing.calls;
    listing.silent = true;
    times.compute = step_seconds(trainer, communicator, host, budget).step;
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
