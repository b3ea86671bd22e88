// Counters as a JSON object, its keys in the order of names.
#pragma once

#include <boost/json.hpp>

#include "scenarios/counter.h"

namespace lockstep {

boost::json::object to_json(const Counters& counters);
// Throws std::invalid_argument for a name that is no counter.
Counters counters_from_json(const boost::json::object& object);

}  // namespace lockstep
