// The page of bench: the sections that were measured.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `report` is the JSON that bench writes.
std::string bench_page(const boost::json::object& report);

}  // namespace lockstep
