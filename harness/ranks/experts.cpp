#include "harness/ranks/experts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "harness/bench/steps.h"
#include "harness/case/schedules.h"
#include "harness/ranks/exchange_waits.h"
#include "harness/ranks/rank_steps.h"
#include "scenarios/expert_ranks.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

constexpr std::array kModes{"eager", "partial", "captured", "full_iteration"};

Scenario of_mode(const Scenario& scenario, const std::string& mode) {
  const GraphImpl impl = mode == "eager"            ? GraphImpl::none
                         : mode == "full_iteration" ? GraphImpl::full_iteration
                                                    : GraphImpl::partial;
  const bool partial = impl == GraphImpl::partial;
  Scenario s = with_graph_impl(partial ? scenario : without_graphs(scenario), impl);
  s.cuda_graph.modules.clear();
  s.cuda_graph.warmup_steps = std::max<std::int64_t>(s.cuda_graph.warmup_steps, 1);
  if (mode != "partial") return s;
  for (const auto& [symbol, module] : {std::pair('*', GraphModule::attn),
                                       {'-', GraphModule::mlp},
                                       {'E', GraphModule::moe_router},
                                       {'M', GraphModule::mamba}}) {
    if (has_layer(s, symbol)) s.cuda_graph.modules.push_back(module);
  }
  std::ranges::sort(s.cuda_graph.modules);
  return s;
}

// A run whose exchange of rows is listed.
struct Run {
  Run(const Scenario& scenario, const DataSource& data, Device& device, Communicator& communicator)
      : all(communicator) {
    // A trainer asks for the ranks that share its experts before it asks for others.
    all.on_group = [this](ListingCommunicator& group) { rows = rows == nullptr ? &group : rows; };
    trainer.emplace(device, scenario, data,
                    TrainerOptions{.dry_run_ledger = false, .communicator = &all});
  }
  ListingCommunicator all;
  ListingCommunicator* rows = nullptr;
  std::optional<Trainer> trainer;
};

// Times waits and exchanges in a few further steps, since the events for it take time. Returns the
// seconds of the exchanges of a step on their stream; absent without a library.
std::optional<double> time_waits(Run& run, ExchangeWaits& waits, Communicator& communicator,
                                 ExpertTimes& times) {
  constexpr int kSteps = 4;
  BackendCommunicator* const library = library_of(run.rows->inner());
  if (library != nullptr) library->measure(true);
  waits.is_on = true;
  for (int step = 0; step < kSteps; ++step) run.trainer->step();
  waits.is_on = false;
  times.exposed = largest(waits.take(), communicator) / kSteps;
  if (library == nullptr) return {};
  library->measure(false);
  return largest(library->take_spent().others, communicator) / kSteps;
}

// `waits`: null where ranks have no device of their own.
void time_mode(const Scenario& scenario, Device& device, ExchangeWaits* waits,
               Communicator& communicator, HostTime& host, double budget, ExpertTimes& times) {
  const auto data = open_data(scenario);
  ExchangeCalls calls;
  std::optional<double> in_step;
  {
    Run run(scenario, *data, device, communicator);
    run.trainer->step();  // Eager, whatever is captured later.
    calls = of_kind(run.rows->calls, false);
    times.step = time_rank_steps(*run.trainer, communicator, host, budget).step;
    if (waits != nullptr && !captures_exchange(scenario))
      in_step = time_waits(run, *waits, communicator, times);
  }
  const auto group = communicator.group(expert_peers(scenario, communicator.rank()));
  times.exchange = exchange_times(calls, device, *group, library_of(*group));
  times.exchange.engine = largest(times.exchange.engine, communicator);
  if (times.exchange.library)
    times.exchange.library = largest(*times.exchange.library, communicator);
  times.exchange.in_step = in_step;
}

}  // namespace

Scenario with_experts_over(Scenario scenario, std::int64_t ranks) {
  Scenario::Model& model = scenario.model;
  if (!has_layer(scenario, 'E')) {
    std::ranges::replace(model.pattern, '-', 'E');
    model.moe.experts = 8;
    model.moe.hidden = std::max<std::int64_t>(1, model.mlp.hidden / 2);
    model.moe.capacity_factor = Ratio{1'250'000};
  }
  model.moe.experts = (model.moe.experts + ranks - 1) / ranks * ranks;
  scenario.parallel.data = scenario.parallel.expert = ranks;
  return scenario;
}

void time_experts(const Scenario& scenario, const std::string& device_kind, const LocalRanks& ranks,
                  const std::string& only, double budget,
                  const std::function<void(const ExpertTimes&)>& done) {
  HostTime host;
  std::unique_ptr<Backend> backend =
      open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed), ranks.gpu);
  ExchangeWaits* waits = nullptr;
  if (ranks.over_nccl) {
    auto timed = std::make_unique<ExchangeWaits>(std::move(backend), open_cuda_stopwatch());
    waits = timed.get();
    backend = std::move(timed);
  }
  Device device(std::move(backend), &host);
  ranks.run(device, [&](Communicator& communicator) {
    for (const std::string mode : kModes) {
      if (mode.find(only) == std::string::npos) continue;
      const Scenario one = of_mode(scenario, mode);
      ExpertTimes times{.mode = mode, .not_run = why_not(one), .exposed = {}, .exchange = {}};
      if (!has_layer(one, 'E')) times.not_run = "the model has no layer that could have experts";
      if (times.not_run.empty()) time_mode(one, device, waits, communicator, host, budget, times);
      if (communicator.rank() == 0) done(times);
    }
  });
}

}  // namespace lockstep
