// The page of doctor: what a machine has, as a list.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `report` is the JSON that doctor writes.
std::string doctor_page(const boost::json::object& report);

}  // namespace lockstep
