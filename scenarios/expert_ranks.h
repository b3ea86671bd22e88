// Which ranks share experts (parallel.expert): docs/scenario-reference.md, "Experts over ranks".
#pragma once

#include <cstdint>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

// The ranks over which the experts of a layer lie: 1 where no layer has experts.
inline std::int64_t expert_ranks(const Scenario& scenario) {
  const bool has_experts = scenario.model.pattern.find('E') != std::string::npos;
  return has_experts ? scenario.parallel.expert : 1;
}

// Ranks of a pipeline stage that have the same experts.
inline std::int64_t expert_replicas(const Scenario& scenario) {
  return scenario.parallel.data / expert_ranks(scenario);
}

// The ranks of the run, ascending, that share the experts of one replica with `rank`.
inline std::vector<int> expert_peers(const Scenario& scenario, int rank) {
  const int size = static_cast<int>(expert_ranks(scenario));
  std::vector<int> ranks;
  for (int peer = 0; peer < size; ++peer) ranks.push_back(rank - rank % size + peer);
  return ranks;
}

// The ranks of the run, ascending, that have the experts of `rank`.
inline std::vector<int> replicas_of_experts(const Scenario& scenario, int rank) {
  const int size = static_cast<int>(expert_ranks(scenario)),
            data = static_cast<int>(scenario.parallel.data);
  std::vector<int> ranks;
  for (int own = rank % size; own < data; own += size) ranks.push_back(rank - rank % data + own);
  return ranks;
}

// Whether a graph would hold the exchange of rows between ranks.
inline bool captures_exchange(const Scenario& scenario) {
  const Scenario::CudaGraph& graph = scenario.cuda_graph;
  if (expert_ranks(scenario) == 1 || graph.impl == GraphImpl::none) return false;
  if (graph.impl == GraphImpl::full_iteration || graph.modules.empty()) return true;
  for (const GraphModule module : graph.modules) {
    if (module == GraphModule::moe) return true;
  }
  return false;
}

// Whether a graph would hold any call between ranks.
inline bool captures_calls(const Scenario& scenario) {
  const bool several = scenario.parallel.data * scenario.parallel.pipeline > 1;
  return several &&
         (scenario.cuda_graph.impl == GraphImpl::full_iteration || captures_exchange(scenario));
}

}  // namespace lockstep
