// The page of mutate: each planted fault, and who caught it.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `report` is the JSON that mutate writes.
std::string mutation_page(const boost::json::object& report);

}  // namespace lockstep
