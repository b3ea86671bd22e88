// The HTML page of `lockstep fuzz --nights`.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `nights` is that of nights_of().
std::string nights_page(const boost::json::object& nights);

}  // namespace lockstep
