#include "harness/bench/steps.h"

#include <algorithm>
#include <vector>

#include "engine/train/trainer.h"
#include "harness/base/stopwatch.h"
#include "harness/bench/host_time.h"
#include "harness/bench/median.h"
#include "harness/bench/model.h"
#include "harness/case/schedules.h"
#include "harness/run/device_choice.h"
#include "scenarios/documents/layout.h"
#include "scenarios/io/reader.h"

namespace lockstep {
namespace {

// After the scenario's own warm-up: captures and first touches are over.
constexpr int kWarmSteps = 3;
constexpr int kFewestSteps = 5;

}  // namespace

std::vector<MicrobatchLengths> lengths_of(const StepData& step) {
  std::vector<MicrobatchLengths> all;
  for (const Microbatch& microbatch : step.microbatches) all.push_back(lengths_of(microbatch));
  return all;
}

Scenario with_graph_impl(Scenario scenario, GraphImpl impl) {
  scenario.cuda_graph.impl = impl;
  if (impl != GraphImpl::partial) scenario.cuda_graph.modules.clear();
  if (impl != GraphImpl::partial) scenario.cuda_graph.shared_memory = false;  // L45
  return scenario;
}

std::string why_not(const Scenario& scenario) {
  for (const auto& errors : {check_legality(scenario), check_built(scenario)}) {
    if (!errors.empty()) return errors.front().text();
  }
  return "";
}

Scenario with_one_pack(Scenario s, const MicrobatchLengths& pack) {
  const std::int64_t length = s.data.pack_length;
  s.data = {};
  s.data.pack_length = length;
  // The median is not used, but must be legal (L10).
  s.data.distribution.median = std::min(s.data.distribution.median, length);
  s.data.documents = {{pack}};
  s.parallel = {};
  s.fsdp = {};
  s.checker.delays.clear();
  s.cuda_graph.max_seqlen.reset();
  s.training.eval_every = 0;
  s.training.recapture_at.clear();
  s.training.change_microbatches_at.clear();
  s.training.steps = s.cuda_graph.warmup_steps + 2;
  s.expect = {};
  return s;
}

Scenario without_graphs(Scenario s) {
  s.cuda_graph.impl = GraphImpl::none;
  s.cuda_graph.modules.clear();
  s.cuda_graph.evaluation = GraphEvaluation::eager;  // L41
  s.cuda_graph.capture_passes = 0;
  s.cuda_graph.shared_memory = false;                             // L45
  s.offload.delay_until_cuda_graph = s.offload.captured = false;  // L30
  return s;
}

std::string mode_name(GraphImpl impl) { return impl == GraphImpl::none ? "eager" : to_text(impl); }

StepTime time_steps(Scenario scenario, GraphImpl impl, const std::string& device_kind,
                    double budget) {
  StepTime result;
  result.mode = mode_name(impl);
  scenario = with_graph_impl(std::move(scenario), impl);
  result.not_run = why_not(scenario);
  if (!result.not_run.empty()) return result;
  const auto data = open_data(scenario);
  HostTime host;
  Device device(open_backend(device_kind, sim_options(scenario, scenario.checker.schedule.seed)),
                &host);
  const auto before = static_cast<std::int64_t>(device.backend().memory_by_driver());
  Trainer trainer(device, scenario, *data, {.dry_run_ledger = false});
  for (std::int64_t i = 0; i < scenario.cuda_graph.warmup_steps + kWarmSteps; ++i) trainer.step();
  const std::int64_t first = trainer.steps_done(), ops = device.counters.ops, calls = host.calls;
  std::vector<double> times, host_times;
  const Stopwatch all;
  while (static_cast<int>(times.size()) < kFewestSteps || all.seconds() < budget) {
    host.begin();
    const Stopwatch one;
    trainer.step();
    times.push_back(one.seconds());
    host_times.push_back(times.back() - host.waited());
  }
  const double steps = static_cast<double>(times.size());
  for (std::int64_t i = first; i < trainer.steps_done(); ++i) {
    const std::vector<MicrobatchLengths> lengths = lengths_of(data->training(i));
    result.flop += model_flop(scenario, lengths) / steps;
    result.tokens += static_cast<double>(lengths.size()) *
                     static_cast<double>(scenario.data.pack_length) / steps;
  }
  add_steps(result, times);
  result.host = median(host_times);
  result.ops = static_cast<double>(device.counters.ops - ops) / steps;
  result.submissions = static_cast<double>(host.calls - calls) / steps;
  result.clocks = device.backend().clocks();
  result.plans = device.backend().plans();
  result.peak_bytes = static_cast<std::int64_t>(device.backend().memory_high_water());
  result.driver_bytes = static_cast<std::int64_t>(device.backend().memory_by_driver()) - before;
  return result;
}

void add_steps(StepTime& time, const std::vector<double>& seconds) {
  time.times.insert(time.times.end(), seconds.begin(), seconds.end());
  time.steps = std::ssize(time.times);
  time.median = median(time.times);
  time.fastest = *std::min_element(time.times.begin(), time.times.end());
}

}  // namespace lockstep
