// The reports that were asked for: --json, --junit, --html, each file whole or not at all.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "harness/base/options.h"

namespace lockstep {

// Before the work: that each report which is asked for can be written where it is to lie. Throws
// WorldError.
void require_report_places(const Options& options);
// `junit_text` is what junit() makes. `run` is run_to_json() of the results, with what a command
// adds to it (a campaign its `distribution`). One that cannot be written does not keep the others
// back, so that none is of an earlier run; then its error is thrown.
void write_reports(const Options& options, const std::string& junit_text,
                   const boost::json::object& run);

}  // namespace lockstep
