#include "harness/bench/offload.h"

#include <algorithm>
#include <vector>

#include "engine/offload/plan.h"
#include "engine/train/trainer.h"
#include "harness/base/columns.h"
#include "harness/base/stopwatch.h"
#include "harness/case/schedules.h"
#include "scenarios/documents/documents.h"
#include "scenarios/rules/offload_modules.h"

namespace lockstep {
namespace {

constexpr int kStepsBeside = 5;
constexpr double kSlowest = 3;  // Times what a step takes alone: then it is known what copies cost.
constexpr std::int64_t kUnderWay = 32;
constexpr double kSecondsOfTwoRounds = 4;

Scenario of_mode(const Scenario& scenario, GraphImpl impl, Ratio fraction, bool captured = false) {
  Scenario s = scenario;
  s.offload.captured = captured;
  s.cuda_graph.impl = impl;
  if (impl != GraphImpl::partial) s.cuda_graph.modules.clear();
  if (impl != GraphImpl::partial) s.cuda_graph.shared_memory = false;  // L45
  s.cuda_graph.warmup_steps = std::max<std::int64_t>(1, s.cuda_graph.warmup_steps);
  s.offload.fraction = fraction;
  if (impl == GraphImpl::full_iteration && !s.offload.max_inflight)
    s.offload.max_inflight = kUnderWay;
  if (captured) s.offload.pool_slack = 0;
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

// Returns the share of a microbatch's copies, both ways, that are nodes of partial graphs.
double share_in_graphs(const OffloadPlan& plan) {
  double copies = 0, nodes = 0;
  for (const OffloadGroup& group : plan.groups) {
    if (group.is_resident) continue;
    const auto tensors = static_cast<double>(group.tensors.size());
    copies += 2 * tensors;
    nodes += tensors * (group.leaves_in_graph + group.returns_in_graph);
  }
  return copies > 0 ? nodes / copies : 0;
}

OffloadRow time_row(const Scenario& scenario, const std::string& device_kind, double budget) {
  OffloadRow row;
  row.fraction = scenario.offload.fraction;
  row.captured = scenario.offload.captured;
  row.time = time_steps(scenario, scenario.cuda_graph.impl, device_kind, budget);
  const OffloadPlan plan = plan_offload(scenario);
  row.bytes = plan.bytes();
  row.saved = plan.saved_bytes();
  row.in_graphs = share_in_graphs(plan);
  row.prefetch = plan.prefetch();
  row.model = forecast(plan);
  return row;
}

// Without offloading, and the fractions whose text holds `fraction`.
std::vector<Scenario> scenarios_of(const Scenario& scenario, GraphImpl impl,
                                   const std::string& fraction) {
  std::vector<Scenario> list;
  for (const std::int64_t quarters : {0, 1, 2, 3, 4}) {
    const std::string text = formatted("%.2f", static_cast<double>(quarters) / 4);
    if (quarters > 0 && text.find(fraction) == std::string::npos) continue;
    for (const bool captured : {false, true}) {
      const Scenario one = of_mode(scenario, impl, Ratio{quarters * 250'000}, captured);
      if (!captured || captures_copies(one)) list.push_back(one);
    }
  }
  return list;
}

// A GPU that is warm or at its limit of power runs slower, by as much as copies cost. So the rows
// are timed in rounds, each in the order opposite to that of the one before.
void time_mode(const Scenario& scenario, GraphImpl impl, const std::string& device_kind,
               const std::string& fraction, double budget,
               const std::function<void(const OffloadRow&)>& done) {
  const std::vector<Scenario> all = scenarios_of(scenario, impl, fraction);
  const int rounds = 2 * std::max(1, static_cast<int>(budget / kSecondsOfTwoRounds));
  std::vector<OffloadRow> rows;
  for (const Scenario& one : all) {
    rows.push_back(time_row(one, device_kind, budget / rounds));
    if (!rows.back().time.not_run.empty()) break;
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  for (int round = 1; round < rounds; ++round) {
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t i = round % 2 == 1 ? count - 1 - k : k;
      if (rows[i].time.not_run.empty())
        add_steps(rows[i].time, time_steps(all[i], impl, device_kind, budget / rounds).times);
    }
  }
  for (OffloadRow& row : rows) {
    row.plain = rows.front().time.median;
    done(row);
  }
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
  const std::size_t at = only.find('@');
  const std::string mode = only.substr(0, at);
  const std::string fraction = at == std::string::npos ? "" : only.substr(at + 1);
  for (const GraphImpl impl : {GraphImpl::none, GraphImpl::partial, GraphImpl::full_iteration}) {
    if (mode_name(impl).find(mode) == std::string::npos) continue;
    time_mode(all, impl, device_kind, fraction, budget, done);
  }
}

}  // namespace lockstep
