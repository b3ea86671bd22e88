// The memory that tensors share, as `describe` prints it.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "scenarios/scenario.h"

namespace lockstep {

// For each precision: bytes with and without sharing, the largest sum of live bytes and what is
// alive then; "" without cuda_graph.shared_memory.
std::string shared_memory_table(const Scenario& scenario);
// The same by precision.
boost::json::object shared_memory_json(const Scenario& scenario);

}  // namespace lockstep
