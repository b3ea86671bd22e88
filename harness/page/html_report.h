// The page of a run that judges: verify, fuzz, replay, shrink, train.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `run` is what run_to_json() makes. Drawn where they are there: `distribution` and `classes` (of a
// campaign), `against` (a difference from another run), and in a result `hazards`. The packs of a
// first difference and the text of the scenario are worked out from the result's token.
std::string html_report(const boost::json::object& run);

}  // namespace lockstep
