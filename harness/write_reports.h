// The reports that were asked for: --json, --junit, --html, each file whole or not at all.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "harness/options.h"

namespace lockstep {

// `junit_text` is what junit() makes. `run` is run_to_json() of the results, with what a command adds to it (a campaign
// its `distribution`).
void write_reports(const Options& options, const std::string& junit_text, const boost::json::object& run);

}  // namespace lockstep
