// A hazard as a drawing: the streams, the two accesses, the edge that is missing, and the bytes
// that both touch.
#pragma once

#include <string>

#include "harness/checker/hazard_record.h"

namespace lockstep {

// "" for a record that names no access: what is destroyed while in use has no bytes.
std::string hazard_picture(const HazardRecord& hazard);
// What the colours and marks of these drawings mean.
std::string hazard_legend();

}  // namespace lockstep
