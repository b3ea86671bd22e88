// The page of plan-packing: what a capacity costs, over the packs that it is for.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `report` is the JSON that plan-packing writes.
std::string packing_page(const boost::json::object& report);

}  // namespace lockstep
