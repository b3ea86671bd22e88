// A trace for other programs and for people.
#pragma once

#include <string>

#include "harness/report/trace.h"

namespace lockstep {

// Chrome's trace events, which ui.perfetto.dev opens: a process per rank, a track per stream,
// launches of graphs on tracks of their own, records and waits as flows. The simulator has no
// clock: an item takes 10 us, so time is the order of execution.
std::string trace_json(const Trace& trace, const std::string& name);
// The order of execution, a line per item.
std::string schedule_text(const Trace& trace);

}  // namespace lockstep
