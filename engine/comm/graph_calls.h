// The calls that a captured graph holds, and the comparison of ranks before they are made.
#pragma once

#include <string>
#include <vector>

#include "engine/device/ledger.h"
#include "engine/rendezvous/collective_ledger.h"

namespace lockstep {

// In the order of capture, a line each.
std::string calls_text(const Ledger& graph);

// `calls`: calls_text of each rank's graph. Throws CollectiveMismatch, naming the first call that differs and both
// sides.
void require_same_calls(int rank, const std::vector<std::string>& calls);

}  // namespace lockstep
