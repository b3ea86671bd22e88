#include "harness/ranks/pipeline.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/bench/steps.h"
#include "harness/case/schedules.h"
#include "harness/ranks/exchanges.h"
#include "harness/ranks/rank_steps.h"
#include "scenarios/pass_order.h"

namespace lockstep {
namespace {

// A communicator connects its stages once, so each mode has one of its own.
void time_mode(const Scenario& scenario, const std::string& device_kind, const LocalRanks& ranks,
               double budget, const std::function<void(const PipelineTimes&)>& done,
               PipelineTimes times) {
  HostTime host;
  Device device(
      open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed), ranks.gpu),
      &host);
  const auto data = open_data(scenario);
  ranks.run(device, [&](Communicator& communicator) {
    PipelineTimes own = times;
    ListingCommunicator listing(communicator);
    Trainer trainer(device, scenario, *data,
                    {.dry_run_ledger = false, .listener = nullptr, .communicator = &listing});
    own.ways = connected_ways(communicator);
    for (std::int64_t i = 0; i < scenario.cuda_graph.warmup_steps; ++i) trainer.step();
    own.step = time_rank_steps(trainer, communicator, host, budget).step;
    listing.transfers = {};
    trainer.step();
    own.sends = std::llround(largest(static_cast<double>(listing.transfers.sends), communicator));
    own.bytes = largest(listing.transfers.bytes, communicator);
    listing.brief = true;
    own.brief = time_rank_steps(trainer, communicator, host, budget).step;
    listing.silent = true;
    own.work = time_rank_steps(trainer, communicator, host, budget).of_ranks;
    if (communicator.rank() == 0) done(own);
  });
}

}  // namespace

double PipelineTimes::most_work() const { return *std::ranges::max_element(work); }
double PipelineTimes::ideal() const {
  return static_cast<double>(stages - 1) / static_cast<double>(microbatches * chunks);
}

Scenario in_stages(Scenario scenario, std::int64_t stages, std::int64_t chunks) {
  scenario.parallel.pipeline = stages;
  scenario.parallel.chunks = chunks;
  scenario.parallel.schedule =
      chunks == 1 ? PipelineSchedule::one_forward_one_backward : PipelineSchedule::interleaved;
  scenario.parallel.group = stages;
  scenario.training.in_flight = scheduled_depth(scenario);
  return scenario;
}

void time_pipeline(const Scenario& scenario, const std::string& device_kind,
                   const LocalRanks& ranks, const std::string& only, double budget,
                   const std::function<void(const PipelineTimes&)>& done) {
  for (const std::int64_t chunks : {1, 2}) {
    for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial}) {
      PipelineTimes times{
          .mode = std::to_string(chunks) + (chunks == 1 ? " chunk " : " chunks ") + mode_name(impl),
          .not_run = "",
          .stages = scenario.parallel.pipeline,
          .chunks = chunks,
          .microbatches = scenario.training.microbatches,
          .has_devices = ranks.over_nccl,
          .work = {}};
      if (times.mode.find(only) == std::string::npos) continue;
      const Scenario of_impl =
          impl == GraphImpl::none ? without_graphs(scenario) : with_graph_impl(scenario, impl);
      const Scenario one = in_stages(of_impl, times.stages, chunks);
      times.not_run = why_not(one);
      if (times.not_run.empty()) {
        time_mode(one, device_kind, ranks, budget, done, times);
      } else if (ranks.first() == 0) {
        done(times);
      }
    }
  }
}

}  // namespace lockstep
