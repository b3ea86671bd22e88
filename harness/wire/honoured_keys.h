// The keys of a scenario that an engine must say whether it honours (docs/engine-protocol.md,
// section 12).
#pragma once

#include <string>

namespace lockstep::wire {

// False for what lockstep itself decides or reads: documents, seeds, the checker, expectations.
bool is_for_engines(const std::string& key);

}  // namespace lockstep::wire
