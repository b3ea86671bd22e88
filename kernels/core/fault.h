// Compiled-in fault points. `fault("name")` is true only where a test or `lockstep mutate` planted that fault.
// Off by default; at most one line at the place of the fault.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {

// The planted fault's name, or "" for none. Set before any device is opened, once a process.
void plant_fault(std::string_view name);
std::string_view planted_fault();

inline bool fault(std::string_view name) { return !planted_fault().empty() && planted_fault() == name; }

// The value that a fault point yields: `right`, or `wrong` while the fault `name` is planted. Both are computed. This
// is the one form that a fault takes in product code: a value on one line, never an `if`, a return or a loop's bound.
template <class T>
T faulty(std::string_view name, T right, std::type_identity_t<T> wrong) {
  return fault(name) ? wrong : right;
}

// Every fault point of the host kernels, in the order of the ops.
std::vector<std::string> kernel_faults();

}  // namespace lockstep
