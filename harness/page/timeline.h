// A drawing of the streams of one step beside each other, each item as early as events and graphs
// let it begin.
#pragma once

#include <string>

#include "harness/report/trace.h"

namespace lockstep {

// Draws rank 0 in the last step of the trace that did anything. Widths are no times: an op is one
// unit wide, a copy wider with its bytes. "" for a trace without items.
std::string timeline(const Trace& trace);

}  // namespace lockstep
