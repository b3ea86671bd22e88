// JSON as the text of a scenario file.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep::wire {

// On one line, with decimals that have no exponent.
std::string scenario_text(const boost::json::value& value);

}  // namespace lockstep::wire
