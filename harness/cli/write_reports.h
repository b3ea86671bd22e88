// Writes the requested reports: --json, --junit, --html, each file whole or not at all.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <string>
#include <vector>

#include "harness/base/errors.h"
#include "harness/base/options.h"

namespace lockstep {

// `junit_text` is the result of junit(). `run` is run_to_json() of the results with additions of
// the command (a campaign adds its `distribution`). If one report cannot be written the others
// still are, so that none is left of an earlier run; then its error is thrown.
void write_reports(const Options& options, const std::string& junit_text,
                   const boost::json::object& run);
// The same for a command whose page is another one than that of judged cases.
void write_reports(const Options& options, const std::string& junit_text,
                   const boost::json::object& run,
                   const std::function<std::string(const boost::json::object&)>& page);
// `report` with the date, the host and the command line. Nothing is decided by these.
boost::json::object signed_report(const Options& options, boost::json::object report);

// For InterruptGuard::AtEnd, until there are results: --json and --junit of these words get the
// failure.
std::function<void()> without_results(const std::vector<std::string>& words);
// `status` is what was found until the signal came: a failure stands, else it is gave_up.
ExitStatus interrupted_status(ExitStatus status);

}  // namespace lockstep
