// Faults that are compiled into kernels and engine, and take effect only while a test or `lockstep
// mutate` has planted them. harness/inject/fault_table.h describes each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

// The planted fault's name, or "" for none. Set before any device is opened, once a process.
void plant_fault(std::string_view name);
std::string_view planted_fault();

// Returns how often this process met a fault point of the planted fault.
std::int64_t fault_points_met();
bool note_fault_point_met();  // True.

// Used by `faulty`, and for faults whose name is known only at run time.
inline bool fault(std::string_view name) {
  return !planted_fault().empty() && planted_fault() == name && note_fault_point_met();
}

// The value that a fault point yields: `right`, or `wrong` while the fault `name` is planted. Both
// are computed. This is the one form that a fault takes in product code: a value on one line, never
// an `if`, a return or a loop's bound.
template <class T>
T faulty(std::string_view name, T right, std::type_identity_t<T> wrong) {
  return fault(name) ? wrong : right;
}

}  // namespace lockstep
