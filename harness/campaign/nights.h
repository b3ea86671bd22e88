// `lockstep fuzz --nights`: what the campaigns of several nights found, from their JSON reports.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

// `nights`: a row for each report, the earliest first, with its seed, counts and how many classes
// of failures no report before it had. `classes`: a row for each class and kind, what failed last
// first, with the first and last date, the cases of each night, and the line that runs its first
// case again. A report that says why its command ended without results is a row with `error`.
// Throws RequestError, which names the file, for any other report that is not a campaign's.
boost::json::object nights_of(const std::vector<std::string>& files);
std::string nights_text(const boost::json::object& nights);

}  // namespace lockstep
