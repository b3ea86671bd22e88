#include "harness/expect/rank_counters.h"

namespace lockstep {
namespace {

constexpr const char* kOfStructure[] = {
    "graphs_captured",    "graph_replays",         "eager_fallbacks",    "graphs_evicted",
    "recaptures",         "max_outstanding",       "slots_live",         "evaluations",
    "collectives",        "collectives_in_graphs", "persistent_buffers", "late_gathers",
    "offloads_in_flight", "spare_buffers"};
constexpr const char* kOfWork[] = {
    "tokens_dropped",     "pairs_routed",     "experts_used",           "bytes_planned",
    "bytes_offloaded",    "bytes_reloaded",   "bytes_poisoned_staging", "ops_recomputed",
    "attention_by_cudnn", "offloads_delayed", "expert_rows_read"};

constexpr const char* kOfDevices[] = {"host_syncs", "ops", "delays_applied", "bytes_poisoned",
                                      "bytes_poisoned_padding"};

std::int64_t count_of(const Counters& counters, const char* name) {
  const auto found = counters.find(name);
  return found == counters.end() ? -1 : found->second;
}

}  // namespace

Counters merged(const std::vector<Counters>& ranks, bool apart) {
  Counters all = ranks.front();
  const auto add_up = [&](const char* name) {
    if (!all.contains(name)) return;
    for (std::size_t r = 1; r < ranks.size(); ++r) all[name] += ranks[r].at(name);
  };
  for (const char* name : kOfWork) add_up(name);
  for (const char* name : kOfDevices) {
    if (apart) add_up(name);
  }
  return all;
}

std::string disagreement(const std::vector<Counters>& ranks) {
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    for (const char* name : kOfStructure) {
      const std::int64_t first = count_of(ranks.front(), name), other = count_of(ranks[r], name);
      if (first == other) continue;
      return "rank " + std::to_string(r) + " counts " + std::to_string(other) + " " + name +
             ", rank 0 " + std::to_string(first);
    }
  }
  return "";
}

}  // namespace lockstep
