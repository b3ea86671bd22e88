#include "harness/report/offload_table.h"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <map>
#include <numeric>
#include <sstream>
#include <vector>

#include "engine/offload/forecast.h"
#include "engine/offload/time_model.h"
#include "kernels/core/at.h"
#include "scenarios/io/reader.h"
#include "scenarios/rules/legality.h"
#include "scenarios/schema/words.h"

namespace lockstep {
namespace {

std::string microseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f us", seconds * 1e6);
  return text;
}

std::string segment_name(const OffloadPlan& plan, int segment) {
  return segment == plan.segments ? "the head" : "segment " + std::to_string(segment);
}

// The step before which copies back begin: "forward 3" is in the forward pass before, and "2 ahead"
// two steps before the end of a pass that may be one through another chunk.
std::string h2d_step_name(const OffloadPlan& plan, int step, bool is_only_chunk) {
  if (!plan.in_forward(step)) return segment_name(plan, plan.segment_of(step));
  if (!is_only_chunk) return std::to_string(plan.backward_step(plan.segments) - step) + " ahead";
  return "forward " + (step == plan.segments ? "head" : std::to_string(step));
}

// "" if it moves.
std::string reason_to_stay(const OffloadGroup& group) {
  if (!group.is_resident) return "";
  return group.is_within_delta ? "offload.delta_bytes" : "offload.fraction";
}

// A stage's plans, and its modelled step.
struct StagePlans {
  StagePlans(const Scenario& scenario, int stage)
      : chunks(plan_offloads(scenario, stage)),
        times(forecast(
            chunks,
            passes_of_step(scenario, 0, static_cast<int>(scenario.training.microbatches), stage))) {
  }
  // Seconds for which compute waits for the copies back of a group.
  double awaited(const OffloadPlan& plan, std::size_t group) const {
    for (int chunk = 0; chunk < plan.chunk; ++chunk) group += at(chunks, chunk).groups.size();
    return times.awaited[group];
  }
  const std::vector<OffloadPlan> chunks;
  const OffloadForecast times;
};

void write_group(std::ostringstream& out, const StagePlans& stage, const OffloadPlan& plan,
                 std::size_t number) {
  const OffloadGroup& group = plan.groups[number];
  const double awaited = stage.awaited(plan, number);
  const bool is_alone = stage.chunks.size() == 1;
  char line[256];
  const std::string name = word(group.module), after = segment_name(plan, group.d2h.begin);
  const std::string from = h2d_step_name(plan, group.h2d.begin, is_alone),
                    used = segment_name(plan, plan.segment_of(group.h2d.end));
  const double copy = copy_seconds(group.bytes());
  std::snprintf(line, sizeof line, "  %5d  %-13s %12lld B  ", group.layer, name.c_str(),
                static_cast<long long>(group.bytes()));
  out << line;
  if (group.is_resident) {
    out << "stays: " << reason_to_stay(group) << "\n";
    return;
  }
  std::snprintf(
      line, sizeof line, "%-12s %-12s %-12s %13s %13s\n", after.c_str(), from.c_str(), used.c_str(),
      microseconds(copy).c_str(),
      microseconds(std::max(0.0, copy - awaited / static_cast<double>(plan.microbatches))).c_str());
  out << line;
}

// Below this, launches and the latency of copies decide, which the model of times knows nothing of.
constexpr double kLeastCompute = 10e-6;

double sum_of(const std::vector<double>& seconds) {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

using BytesByModule = std::map<OffloadModule, std::int64_t>;

BytesByModule totals(const OffloadPlan& plan) {
  BytesByModule sums;
  for (const OffloadGroup& group : plan.groups)
    sums[group.module] += group.is_resident ? 0 : group.bytes();
  return sums;
}

// Copies of one microbatch each way, and how many of them are nodes of partial graphs.
struct CopyCounts {
  std::int64_t each_way = 0, out_in_graphs = 0, back_in_graphs = 0;
};
CopyCounts copy_counts(const OffloadPlan& plan) {
  CopyCounts counts;
  for (const OffloadGroup& group : plan.groups) {
    if (group.is_resident) continue;
    const std::int64_t copies = std::ssize(group.tensors);
    counts.each_way += copies;
    counts.out_in_graphs += group.leaves_in_graph ? copies : 0;
    counts.back_in_graphs += group.returns_in_graph ? copies : 0;
  }
  return counts;
}

// What copies cost beside a step's compute.
std::string write_forecast(const Scenario& scenario, const OffloadForecast& times) {
  if (times.compute < kLeastCompute) {
    return "  a step computes for " + microseconds(times.compute) +
           ": too small for a forecast of what its copies cost\n";
  }
  std::ostringstream out;
  char line[256];
  std::snprintf(
      line, sizeof line,
      "  model of a step: copies out %s, back %s, at %.0f GB/s, %.0f while both ways are busy\n",
      microseconds(times.d2h).c_str(), microseconds(times.h2d).c_str(), kLinkAlone * 1e-9,
      kLinkBoth * 1e-9);
  out << line;
  std::snprintf(line, sizeof line, "  beside %s of compute, products at %.0f TFLOP/s\n",
                microseconds(times.compute).c_str(),
                (stores_bf16(scenario) ? kTensorFlopPerSecond : kFp32FlopPerSecond) * 1e-12);
  out << line;
  std::snprintf(line, sizeof line,
                "  compute waits %s, %s of it for copies back, and is slowed by %s\n",
                microseconds(times.stalled).c_str(), microseconds(sum_of(times.awaited)).c_str(),
                microseconds(times.slowed).c_str());
  out << line;
  std::snprintf(line, sizeof line,
                "  %s under compute: %.0f %% of the copying is hidden, a step is %.1f %% slower\n",
                times.fits() ? "fits" : "does not fit", times.hidden() * 100, times.slower() * 100);
  out << line;
  return out.str();
}

// A row for each rank, a column for each module: the bytes that leave in a microbatch.
void write_ranks(std::ostringstream& out, const std::vector<BytesByModule>& stages,
                 std::int64_t data) {
  constexpr int kModule = 15, kTotal = 16;
  out << "\nbytes of a microbatch that each rank offloads\n   rank";
  for (const auto& [module, bytes] : stages.front()) out << std::setw(kModule) << word(module);
  out << std::setw(kTotal) << "total"
      << "\n";
  const auto write_row = [&](const BytesByModule& row) {
    std::int64_t sum = 0;
    for (const auto& [module, bytes] : row) {
      out << std::setw(kModule) << bytes;
      sum += bytes;
    }
    out << std::setw(kTotal) << sum << "\n";
  };
  BytesByModule all;
  for (std::int64_t rank = 0; rank < std::ssize(stages) * data; ++rank) {
    const BytesByModule& own = at(stages, rank / data);
    out << std::setw(7) << rank;
    write_row(own);
    for (const auto& [module, bytes] : own) all[module] += bytes;
  }
  out << "  total";
  write_row(all);
}

void write_device(std::ostringstream& out, const OffloadPlan& plan) {
  out << "  device: " << plan.slots << " slots give up " << plan.slots * plan.bytes()
      << " bytes and share " << plan.device_bytes() << ": " << plan.saved_bytes()
      << " saved; prefetch distance " << plan.prefetch()
      << (plan.prefetch() == 1 ? " segment" : " segments")
      << (plan.reversed ? "; every other slot has its bins in opposite order\n" : "\n");
  if (!plan.captured) return;
  const CopyCounts counts = copy_counts(plan);
  out << "  nodes of graphs: " << counts.out_in_graphs << " of " << counts.each_way
      << " copies out, " << counts.back_in_graphs << " of " << counts.each_way
      << " back, in each microbatch that is replayed\n";
}

void write_chunk(std::ostringstream& out, const Scenario& scenario, const StagePlans& stage,
                 const OffloadPlan& plan) {
  const std::int64_t rank = plan.stage * scenario.parallel.data;
  out << "\noffload plan of rank " << rank << " (" << to_text(scenario.numerics.front())
      << "), fixed before the first step; " << plan.groups.size()
      << " groups in order of execution\n"
      << "  layer  module                         leaves after comes from   comes before     copy "
         "back        hidden\n";
  for (std::size_t i = 0; i < plan.groups.size(); ++i) write_group(out, stage, plan, i);
  out << "  bytes of a microbatch by module, rank " << rank << ":";
  for (const auto& [module, bytes] : totals(plan)) out << " " << word(module) << " " << bytes;
  out << "\n  total " << plan.bytes() << " bytes to the host and back"
      << (scenario.model.moe.host_sync ? ", at most: rows of experts follow the data" : "") << "\n";
  if (stage.chunks.size() == 1) out << write_forecast(scenario, stage.times);
  write_device(out, plan);
}

void write_stage(std::ostringstream& out, const Scenario& scenario, const StagePlans& stage) {
  if (scenario.parallel.pipeline > 1) out << "\nstage " << stage.chunks.front().stage << "\n";
  for (const OffloadPlan& plan : stage.chunks) {
    if (stage.chunks.size() > 1) out << "\nchunk " << plan.chunk << "\n";
    write_chunk(out, scenario, stage, plan);
  }
  if (stage.chunks.size() > 1)
    out << "\nall chunks of the stage\n" << write_forecast(scenario, stage.times);
}

boost::json::object chunk_json(const Scenario& scenario, const StagePlans& stage,
                               const OffloadPlan& plan) {
  const OffloadForecast& times = stage.times;
  boost::json::array groups;
  for (std::size_t i = 0; i < plan.groups.size(); ++i) {
    const OffloadGroup& group = plan.groups[i];
    boost::json::array tensors;
    for (const OffloadTensor& tensor : group.tensors) {
      tensors.push_back(boost::json::object{{"name", tensor.name}, {"bytes", tensor.bytes}});
    }
    groups.push_back(boost::json::object{
        {"rank", plan.stage * scenario.parallel.data},
        {"layer", group.layer},
        {"module", word(group.module)},
        {"bytes", group.bytes()},
        {"stays", group.is_resident},
        {"stays_for", reason_to_stay(group)},
        {"leaves_after", group.d2h.begin},
        {"gone_after", group.d2h.end},
        {"returns_from", group.is_resident ? 0 : plan.last_step() - group.h2d.begin},
        {"returns_before", plan.last_step() - group.h2d.end},
        {"copy_seconds", copy_seconds(group.bytes())},
        {"awaited_seconds", stage.awaited(plan, i)},
        {"leaves_in_graph", group.leaves_in_graph},
        {"returns_in_graph", group.returns_in_graph},
        {"tensors", std::move(tensors)}});
  }
  boost::json::object modules;
  for (const auto& [module, bytes] : totals(plan)) modules[word(module)] = bytes;
  return {{"stage", plan.stage},
          {"chunk", plan.chunk},
          {"segments", plan.segments},
          {"prefetch", plan.prefetch()},
          {"slots", plan.slots},
          {"mirrored", plan.reversed},
          {"bytes", plan.bytes()},
          {"device_bytes", plan.device_bytes()},
          {"saved_bytes", plan.saved_bytes()},
          {"model",
           {{"link_bytes_per_second", kLinkAlone},
            {"link_bytes_per_second_both_ways", kLinkBoth},
            {"compute_seconds", times.compute},
            {"out_seconds", times.d2h},
            {"back_seconds", times.h2d},
            {"stalled_seconds", times.stalled},
            {"slowed_seconds", times.slowed},
            {"slower", times.slower()},
            {"fits_under_compute", times.fits()},
            {"hidden", times.hidden()}}},
          {"modules", modules},
          {"groups", std::move(groups)}};
}

}  // namespace

std::string offload_tables(const Scenario& scenario) {
  if (scenario.offload.modules.empty()) return "";
  const std::int64_t stages = scenario.parallel.pipeline;
  std::ostringstream out;
  BytesByModule none;
  for (const OffloadModule module : scenario.offload.modules) none[module] = 0;
  std::vector<BytesByModule> moved(stages, none);
  for (int number = 0; number < stages; ++number) {
    const StagePlans stage(scenario, number);
    write_stage(out, scenario, stage);
    for (const OffloadPlan& plan : stage.chunks) {
      for (const auto& [module, bytes] : totals(plan)) at(moved, number)[module] += bytes;
    }
  }
  if (stages > 1) write_ranks(out, moved, scenario.parallel.data);
  return out.str();
}

boost::json::array offload_json(const Scenario& scenario) {
  boost::json::array chunks;
  for (int number = 0; number < scenario.parallel.pipeline; ++number) {
    const StagePlans stage(scenario, number);
    for (const OffloadPlan& plan : stage.chunks)
      chunks.push_back(chunk_json(scenario, stage, plan));
  }
  return chunks;
}

}  // namespace lockstep
