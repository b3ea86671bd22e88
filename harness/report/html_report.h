// A run as one HTML page that needs nothing else: no script, no resource from elsewhere.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `run` is what run_to_json() makes. Two parts are drawn where they are there: `distribution` (of a
// campaign) and, in a result, `hazards`: an array of texts. The packs of a first difference are
// worked out from the result's token.
std::string html_report(const boost::json::object& run);

}  // namespace lockstep
