#include "harness/report/sharding_table.h"

#include <cstdio>
#include <sstream>

#include "engine/fsdp/buffer_plan.h"
#include "harness/expect/blind_spots.h"
#include "harness/expect/sharding_plan.h"
#include "kernels/core/at.h"
#include "scenarios/rules/legality.h"

namespace lockstep {
namespace {

std::string unit_name(const ShardLayout& layout, int index) {
  const Unit& unit = at(layout.units, index);
  if (unit.kind == Unit::Kind::embedding) return "embedding";
  if (unit.kind == Unit::Kind::head) return "norm, head";
  return "unit " + std::to_string(index - 1);
}

// "0", "0 or 1", "2, its own"; "-" where nothing is kept.
std::string slots_of(const BufferPlan& plan, int unit) {
  std::string text;
  for (const int slot : at(plan.choices, unit)) {
    text += (text.empty() ? "" : " or ") + std::to_string(slot);
  }
  if (text.empty()) return "-";
  return text + (holds(plan.persistent, unit) ? ", its own" : "");
}

const char* read_as(const Bucket& bucket) {
  if (bucket.codes) return "codes";
  return bucket.narrow ? "bf16" : "fp32";
}

void write_buckets(std::ostringstream& out, const ShardLayout& layout, const BufferPlan& weights,
                   const BufferPlan& gradients) {
  out << "  unit        read as  of a rank  of all  empty on  weights in slot  gradients in slot\n";
  for (const Bucket& bucket : layout.buckets) {
    int empty = 0;
    for (int rank = 0; rank < layout.ranks; ++rank) empty += layout.is_empty(bucket, rank);
    char line[200];
    std::snprintf(line, sizeof line, "  %-10s  %-7s  %9lld  %6lld  %d ranks   %-15s  %s\n",
                  unit_name(layout, bucket.unit).c_str(), read_as(bucket),
                  static_cast<long long>(bucket.shard), static_cast<long long>(layout.full(bucket)),
                  empty, slots_of(weights, bucket.unit).c_str(),
                  slots_of(gradients, bucket.unit).c_str());
    out << line;
  }
}

void write_collectives(std::ostringstream& out, const Scenario& scenario) {
  const ShardingPlan plan = plan_sharding(scenario);
  const std::int64_t microbatches = scenario.training.microbatches;
  out << "  collectives of a rank: " << collectives_at_start(scenario, plan) << " at the start, "
      << collectives_of_step(scenario, plan, microbatches) << " a step of " << microbatches
      << " microbatches, " << collectives_of_evaluation(scenario, plan, microbatches)
      << " an evaluation\n";
  if (scenario.cuda_graph.capture_passes > 0) {
    out << "  in the passes of a capture: " << collectives_of_capture(scenario, plan)
        << " for the graphs of a bucket\n";
  }
  if (const std::int64_t held = exchanges_in_regions(scenario, true); held > 0) {
    out << "  in the graphs of a microbatch: " << held
        << ", of one of an evaluation by graphs: " << exchanges_in_regions(scenario, false) << "\n";
  }
  if (scenario.cuda_graph.impl != GraphImpl::full_iteration) return;
  out << "  in the graph of a step: " << collectives_of_passes(scenario, plan, microbatches)
      << ", of an evaluation: " << collectives_of_forward_passes(scenario, plan, microbatches)
      << "\n";
}

}  // namespace

std::string sharding_table(const Scenario& scenario) {
  if (!with_reduction(scenario)) return "";
  const int ranks = static_cast<int>(scenario.parallel.data);
  const ParameterList list(scenario.model, expert_place(scenario, 0));
  const ShardLayout layout(list, scenario, ranks, stores_bf16(scenario));
  std::ostringstream out;
  out << "\nsharding: " << word(scenario.fsdp.strategy) << " over " << ranks << " ranks ("
      << word(scenario.numerics.front()) << ")\n";
  write_buckets(out, layout, plan_weights(layout, scenario.fsdp),
                plan_gradients(layout, scenario.fsdp));
  write_collectives(out, scenario);
  for (const std::string& spot : blind_spots(scenario)) out << "  " << blind_line(spot) << "\n";
  return out.str();
}

}  // namespace lockstep
