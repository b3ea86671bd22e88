// The part of the HTML page that says what a campaign drew: features, edges, and pairs that never
// met.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `distribution` as Distribution::to_json() makes it; whatever else is in it is shown as names and
// values.
std::string coverage_section(const boost::json::value& distribution);

}  // namespace lockstep
