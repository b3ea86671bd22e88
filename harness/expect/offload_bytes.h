// The bytes that offloading must move, computed from the scenario without the engine's plan.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/scenario.h"

namespace lockstep {

struct OffloadDemand {
  std::int64_t fixed = 0;  // Bytes to the host in a microbatch, whatever its documents are.
  // Bytes for each pair that the experts of a rank keep, of all sources, by layer, where rows
  // follow the pairs.
  std::map<int, std::int64_t> per_pair;
  // The same of codes of fp8, in bytes of a column: as many columns as these pairs, up to a
  // multiple of 16, and 16 for each segment but one, which are as many as the experts of a layer;
  // none without a pair.
  std::map<int, std::int64_t> per_column;
  bool follows_the_data() const { return !per_pair.empty() || !per_column.empty(); }
  std::int64_t of_experts = 0;  // Groups of the experts' modules, which may be delayed.
  // Under offload.captured: the copies of a microbatch that are nodes of graphs, to the host as the
  // scenario says, and back where the plan puts them; and their bytes.
  std::int64_t copies_in_graphs = 0, bytes_in_graphs = 0;
  // Piece and bytes of the tensors that go, at their largest: each chunk has a pool of its own.
  std::set<std::pair<std::int64_t, std::int64_t>> sizes;
};

// Columns of the transposed codes of so many rows of the experts' buffer; none without a row.
std::int64_t columns_of_codes(std::int64_t rows, std::int64_t experts);

OffloadDemand offload_demand(const Scenario& scenario);

// Whether offload.delta_bytes keeps anything: a stage but the first has a group.
bool keeps_for_delta(const Scenario& scenario);

// A module of offload.modules of which no tensor of any layer moves, and why.
struct StayingModule {
  OffloadModule module{};
  std::string why;
};

std::vector<StayingModule> staying_modules(const Scenario& scenario);

}  // namespace lockstep
