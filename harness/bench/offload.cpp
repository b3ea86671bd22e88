#include "harness/bench/offload.h"

#include <algorithm>

#include "engine/offload/plan.h"
#include "engine/train/trainer.h"
#include "harness/base/stopwatch.h"
#include "harness/case/schedules.h"
#include "scenarios/documents/documents.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

constexpr int kStepsBeside = 5;
constexpr double kSlowest = 3;  // Times what a step takes alone: then it is known what copies cost.
constexpr std::int64_t kUnderWay = 32;

Scenario of_mode(const Scenario& scenario, GraphImpl impl, Ratio fraction) {
  Scenario s = scenario;
  s.cuda_graph.impl = impl;
  if (impl != GraphImpl::partial) s.cuda_graph.modules.clear();
  s.cuda_graph.warmup_steps = std::max<std::int64_t>(1, s.cuda_graph.warmup_steps);
  s.offload.fraction = fraction;
  if (impl == GraphImpl::full_iteration && !s.offload.max_inflight)
    s.offload.max_inflight = kUnderWay;
  if (impl != GraphImpl::partial) s.offload.delay_until_cuda_graph = false;
  return s;
}

Scenario with_modules(const Scenario& scenario) {
  Scenario s = scenario;
  if (!s.offload.modules.empty()) return s;
  s.cuda_graph.impl = GraphImpl::partial;
  s.offload.modules = offloadable_modules(s);
  s.cuda_graph.impl = scenario.cuda_graph.impl;
  return s;
}

}  // namespace

LinkRates time_link(const Scenario& scenario, const std::string& device_kind, double budget) {
  Scenario plain = of_mode(scenario, GraphImpl::none, {});
  plain.offload = {};
  plain.checker.delays.clear();
  const auto data = open_data(plain);
  Device device(open_backend(device_kind, sim_options(plain, plain.checker.schedule.seed)));
  Trainer trainer(device, plain, *data, {.dry_run_ledger = false});
  Device aside(open_backend(device_kind, sim_options(plain, plain.checker.schedule.seed)));
  LinkProbe probe(aside);
  for (int i = 0; i < 2; ++i) trainer.step();
  LinkRates rates;
  rates.alone = probe.alone(budget / 4);
  rates.both = probe.both(budget / 4);
  const auto step_seconds = [&] {
    const Stopwatch watch;
    for (int i = 0; i < kStepsBeside; ++i) trainer.step();
    return watch.seconds() / kStepsBeside;
  };
  rates.step = step_seconds();
  rates.beside =
      probe.beside([&] { rates.disturbed = step_seconds(); }, kSlowest * kStepsBeside * rates.step);
  return rates;
}

void time_offload(const Scenario& scenario, const std::string& device_kind, double budget,
                  const std::string& only, const std::function<void(const OffloadRow&)>& done) {
  const Scenario all = with_modules(scenario);
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    if (mode_name(impl).find(only) == std::string::npos) continue;
    double plain = 0;
    for (const std::int64_t quarters : {0, 1, 2, 3, 4}) {
      OffloadRow row;
      row.fraction = Ratio{quarters * 250'000};
      const Scenario one = of_mode(all, impl, row.fraction);
      row.time = time_steps(one, impl, device_kind, budget);
      const OffloadPlan plan = plan_offload(one);
      if (quarters == 0) plain = row.time.median;
      row.plain = plain;
      row.bytes = plan.bytes();
      row.saved = plan.saved_bytes();
      row.prefetch = plan.prefetch();
      row.model = forecast(plan);
      done(row);
      if (!row.time.not_run.empty()) break;
    }
  }
}

}  // namespace lockstep
