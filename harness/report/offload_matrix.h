// The modules that may be offloaded under which graphs, asked of the rules themselves: a table for
// docs/offloading.md.
#pragma once

#include <string>

namespace lockstep {

// Markdown. A cell is "yes", "late" (yes, and its copies may be delayed until the next graph), the
// rule that refuses, or empty where the pattern lacks the layer that the graph would hold.
std::string offload_matrix();

}  // namespace lockstep
