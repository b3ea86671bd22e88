#include "harness/expect/rank_counters.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr Counter kOfStructure[] = {Counter::graphs_captured,
                                    Counter::graph_replays,
                                    Counter::eager_fallbacks,
                                    Counter::graphs_evicted,
                                    Counter::recaptures,
                                    Counter::capture_passes,
                                    Counter::max_outstanding,
                                    Counter::slots_live,
                                    Counter::evaluations,
                                    Counter::collectives,
                                    Counter::collectives_in_graphs,
                                    Counter::persistent_buffers,
                                    Counter::late_gathers,
                                    Counter::offloads_in_flight,
                                    Counter::spare_buffers,
                                    Counter::bytes_shared,
                                    Counter::amax_exchanges};
constexpr Counter kOfWork[] = {Counter::tokens_dropped,
                               Counter::pairs_routed,
                               Counter::experts_used,
                               Counter::bytes_planned,
                               Counter::bytes_offloaded,
                               Counter::bytes_reloaded,
                               Counter::bytes_poisoned_staging,
                               Counter::ops_recomputed,
                               Counter::attention_by_cudnn,
                               Counter::offloads_delayed,
                               Counter::expert_rows_read,
                               Counter::copies_in_graphs,
                               Counter::copy_bytes_in_graphs,
                               Counter::fp8_products,
                               Counter::fp8_casts,
                               Counter::weight_casts};

// The largest of all stages counts, not the sum.
constexpr Counter kMost[] = {Counter::max_outstanding, Counter::slots_live,
                             Counter::offloads_in_flight};
// These follow from those of structure.
constexpr Counter kReasons[] = {Counter::fallbacks_documents, Counter::fallbacks_length,
                                Counter::fallbacks_cut, Counter::evaluation_replays};

constexpr Counter kOfDevices[] = {Counter::host_syncs, Counter::ops, Counter::delays_applied,
                                  Counter::bytes_poisoned, Counter::bytes_poisoned_padding};

std::int64_t count_of(const Counters& counters, Counter name) {
  const auto found = counters.find(name);
  return found == counters.end() ? -1 : found->second;
}

}  // namespace

Counters merged(const std::vector<Counters>& ranks, bool apart, std::int64_t stages) {
  Counters all = ranks.front();
  const std::size_t of_a_stage = ranks.size() / stages;
  const auto over_stages = [&](Counter name) {
    if (!all.contains(name)) return;
    const bool most = std::ranges::find(kMost, name) != std::end(kMost);
    for (std::size_t r = of_a_stage; r < ranks.size(); r += of_a_stage) {
      const std::int64_t own = ranks[r].at(name);
      all[name] = most ? std::max(all[name], own) : all[name] + own;
    }
  };
  for (const Counter name : kOfStructure) over_stages(name);
  for (const Counter name : kReasons) over_stages(name);
  const auto add_up = [&](Counter name) {
    if (!all.contains(name)) return;
    for (std::size_t r = 1; r < ranks.size(); ++r) all[name] += ranks[r].at(name);
  };
  for (const Counter name : kOfWork) add_up(name);
  for (const Counter name : kOfDevices) {
    if (apart) add_up(name);
  }
  return all;
}

std::string disagreement(const std::vector<Counters>& ranks, std::int64_t stages) {
  const std::size_t of_a_stage = ranks.size() / stages;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const std::size_t head = r - r % of_a_stage;
    for (const Counter name : kOfStructure) {
      const std::int64_t first = count_of(ranks[head], name), other = count_of(ranks[r], name);
      if (first == other) continue;
      return "rank " + std::to_string(r) + " counts " + std::to_string(other) + " " +
             to_text(name) + ", rank " + std::to_string(head) + " " + std::to_string(first);
    }
  }
  return "";
}

}  // namespace lockstep
