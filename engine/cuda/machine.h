#pragma once

#include <string>

namespace lockstep {

// The boot of this machine, which processes of one machine share; "" if the system does not tell.
const std::string& this_machine();

}  // namespace lockstep
