// What changed between two runs of the same cases: `verify --against OLD.json`.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// Both are runs as --json writes them. `file` is named in the result. Cases are found again by the
// name of their file, their own name and their precision. Lists: newly_failing, mended,
// other_failure (both fail, by another judge or for another reason), added, gone, counters (both
// hold, and one counts otherwise), slower (by half, and by half a second at least).
boost::json::object run_difference(const boost::json::object& old_run,
                                   const boost::json::object& new_run, const std::string& file);
// A line of numbers, and a line for each case that newly fails or is mended.
std::string difference_text(const boost::json::object& difference);
// The report in `file`. Throws RequestError, which names `option`, for what is no report of a run.
boost::json::object read_report(const std::string& file, const char* option);

}  // namespace lockstep
