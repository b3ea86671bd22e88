// Compiled-in fault points. `fault("name")` is true only where a test or `lockstep mutate` planted that fault.
// Off by default; at most one line at the place of the fault.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The planted fault's name, or "" for none. Set before any device is opened, once a process.
void plant_fault(std::string_view name);
std::string_view planted_fault();

inline bool fault(std::string_view name) { return !planted_fault().empty() && planted_fault() == name; }

// Every fault point of the host kernels, in the order of the ops.
std::vector<std::string> kernel_faults();

}  // namespace lockstep
