#include "scenarios/counter.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

// In the order of the enumerators.
const std::array<std::string, 47>& all_names() {
  static const std::array<std::string, 47> list{"graphs_captured",
                                                "graph_replays",
                                                "eager_fallbacks",
                                                "graphs_evicted",
                                                "recaptures",
                                                "max_outstanding",
                                                "slots_live",
                                                "evaluations",
                                                "host_syncs",
                                                "tokens_dropped",
                                                "bytes_planned",
                                                "bytes_offloaded",
                                                "bytes_reloaded",
                                                "collectives",
                                                "collectives_in_graphs",
                                                "persistent_buffers",
                                                "late_gathers",
                                                "offloads_in_flight",
                                                "offloads_delayed",
                                                "spare_buffers",
                                                "copies_in_graphs",
                                                "copy_bytes_in_graphs",
                                                "pairs_routed",
                                                "experts_used",
                                                "expert_rows_read",
                                                "ops_recomputed",
                                                "attention_by_cudnn",
                                                "ops",
                                                "hazards_checked",
                                                "delays_applied",
                                                "bytes_poisoned",
                                                "bytes_poisoned_padding",
                                                "bytes_poisoned_staging",
                                                "schedules_explored",
                                                "fallbacks_documents",
                                                "fallbacks_length",
                                                "fallbacks_cut",
                                                "evaluation_replays",
                                                "capture_passes",
                                                "resumes",
                                                "bytes_shared",
                                                "fp8_products",
                                                "fp8_casts",
                                                "weight_casts",
                                                "amax_exchanges",
                                                "door_faults_struck",
                                                "planted_fault_met"};
  return list;
}

}  // namespace

const std::string& to_text(Counter counter) {
  return all_names().at(static_cast<std::size_t>(counter));
}

std::optional<Counter> counter_from_text(const std::string& name) {
  const auto found = std::find(all_names().begin(), all_names().end(), name);
  if (found == all_names().end()) return std::nullopt;
  return static_cast<Counter>(found - all_names().begin());
}

}  // namespace lockstep
