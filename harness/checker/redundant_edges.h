// Which edges of a run protect nothing: without them, the checker finds every pair of conflicting
// accesses in order.
#pragma once

#include <vector>

#include "harness/checker/call_log.h"
#include "harness/checker/checker.h"

namespace lockstep {

struct EdgeVerdict {
  Edge edge;
  EdgeUse use;
  std::string text;  // "compute waits for event 3 of loader (4 calls)".
  bool redundant = false;
  bool together = false;  // Still redundant if the edges before it in the list are dropped as well.
};

// Judges every edge that the logged run used. The run itself must be free of hazards.
std::vector<EdgeVerdict> judge_edges(const CallLog& log);

// A line for each redundant edge.
std::vector<std::string> redundant_edges(const CallLog& log);

}  // namespace lockstep
