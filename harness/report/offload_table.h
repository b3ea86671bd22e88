// The offload plan for people and programs: what leaves, when it comes back, how many bytes, how
// long on the link.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "engine/offload/plan.h"

namespace lockstep {

std::string offload_table(const Scenario& scenario, const OffloadPlan& plan);
boost::json::object offload_json(const OffloadPlan& plan);

}  // namespace lockstep
