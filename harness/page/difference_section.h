// The part of a page that shows what changed since another run.
#pragma once

#include <boost/json.hpp>
#include <string>

namespace lockstep {

// `difference` is the result of run_difference().
std::string difference_section(const boost::json::object& difference);

}  // namespace lockstep
