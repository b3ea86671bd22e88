// Lists the collective calls in a captured graph, and compares the lists of all ranks before a
// launch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/device/ledger.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

// One line for each call, in the order of capture.
std::string calls_text(const Ledger& graph);

// `calls`: calls_text of each rank's graph. Throws CollectiveMismatch, naming the first call that
// differs and both sides.
void require_same_calls(int rank, const std::vector<std::string>& calls);

// Lists transfers likewise, one line for each. `documents`: the digest of each microbatch. A graph
// serves many steps, so what it holds does not name them.
std::string transfers_text(const Ledger& graph, std::span<const std::uint64_t> documents);

// The transfers of one rank's graph.
struct RankTransfers {
  int rank = 0;
  std::string text;  // Its transfers_text.
};
// Each piece has one sender and one receiver of a purpose among the ranks of a replica.
// Throws CollectiveMismatch, naming the first of which these two differ and both sides.
void require_matching_transfers(const std::vector<RankTransfers>& ranks);

}  // namespace lockstep
