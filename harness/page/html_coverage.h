// The part of the HTML page that shows what a campaign drew: features, edges, and pairs that never
// met.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `distribution` is the result of Distribution::to_json(). Other content is shown as names and
// values.
std::string coverage_section(const boost::json::value& distribution);

}  // namespace lockstep
