// Writes the requested reports: --json, --junit, --html, each file whole or not at all.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "harness/base/options.h"

namespace lockstep {

// Called before the work. Throws WorldError unless each requested report can be written.
void require_report_places(const Options& options);
// `junit_text` is the result of junit(). `run` is run_to_json() of the results with additions of
// the command (a campaign adds its `distribution`). If one report cannot be written the others
// still are, so that none is left of an earlier run; then its error is thrown.
void write_reports(const Options& options, const std::string& junit_text,
                   const boost::json::object& run);

}  // namespace lockstep
