// Lists the collective calls in a captured graph, and compares the lists of all ranks before a
// launch.
#pragma once

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

}  // namespace lockstep
