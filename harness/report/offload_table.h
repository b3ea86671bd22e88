// The offload plan for people and programs: what leaves, when it comes back, how many bytes, how
// long on the link.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "engine/offload/plan.h"

namespace lockstep {

// The tables of all chunks of all stages, and with several stages what each rank moves; "" without
// offloading.
std::string offload_tables(const Scenario& scenario);
// One object for each chunk of each stage.
boost::json::array offload_json(const Scenario& scenario);

}  // namespace lockstep
