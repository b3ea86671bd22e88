// The page of describe: what a scenario means, and what its streams do beside each other.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `report` is the JSON of describe. Beside it: `text`, what describe prints; `scenario_text`, YAML;
// `timeline`, HTML of timeline(), or `no_timeline`, why there is none.
std::string describe_page(const boost::json::object& report);

}  // namespace lockstep
