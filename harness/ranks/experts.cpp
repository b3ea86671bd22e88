#include "harness/ranks/experts.h"

#include <algorithm>
#include <array>
#include <utility>

#include "harness/bench/steps.h"
#include "harness/case/schedules.h"
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

// A run whose exchange of rows is listed, and can be silenced.
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

void time_mode(const Scenario& scenario, Device& device, Communicator& communicator, HostTime& host,
               double budget, ExpertTimes& times) {
  const auto data = open_data(scenario);
  ExchangeCalls calls;
  std::optional<double> in_step;
  {
    Run run(scenario, *data, device, communicator);
    run.trainer->step();  // Eager, whatever is captured later.
    calls = of_kind(run.rows->calls, false);
    times.step = time_rank_steps(*run.trainer, communicator, host, budget).step;
    BackendCommunicator* const library = library_of(run.rows->inner());
    if (library != nullptr && !captures_exchange(scenario)) {
      library->measure(true);
      run.trainer->step();
      library->measure(false);
      in_step = largest(library->take_spent().others, communicator);
    }
  }
  {
    // The exchanges fall silent behind a first step, whose rows stay in the buffers. Graphs are
    // captured behind it too, since they hold the calls of their capture.
    Run run(scenario, *data, device, communicator);
    run.trainer->step();
    run.rows->silent = true;
    times.compute = time_rank_steps(*run.trainer, communicator, host, budget).step;
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
  Device device(
      open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed), ranks.gpu),
      &host);
  ranks.run(device, [&](Communicator& communicator) {
    for (const std::string mode : kModes) {
      if (mode.find(only) == std::string::npos) continue;
      const Scenario one = of_mode(scenario, mode);
      ExpertTimes times{.mode = mode, .not_run = why_not(one), .exchange = {}};
      if (!has_layer(one, 'E')) times.not_run = "the model has no layer that could have experts";
      if (times.not_run.empty()) time_mode(one, device, communicator, host, budget, times);
      if (communicator.rank() == 0) done(times);
    }
  });
}

}  // namespace lockstep
