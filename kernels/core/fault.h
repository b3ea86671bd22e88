// Faults that are compiled into kernels and engine, and do something only while a test or `lockstep
// mutate` has planted them. harness/inject/fault_table.h says what each stands for.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {

// The planted fault's name, or "" for none. Set before any device is opened, once a process.
void plant_fault(std::string_view name);
std::string_view planted_fault();

// For `faulty`, and for a fault whose name is only known at run time.
inline bool fault(std::string_view name) {
  return !planted_fault().empty() && planted_fault() == name;
}

// The value that a fault point yields: `right`, or `wrong` while the fault `name` is planted. Both
// are computed. This is the one form that a fault takes in product code: a value on one line, never
// an `if`, a return or a loop's bound.
template <class T>
T faulty(std::string_view name, T right, std::type_identity_t<T> wrong) {
  return fault(name) ? wrong : right;
}

}  // namespace lockstep
