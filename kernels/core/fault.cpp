#include "kernels/core/fault.h"

#include <atomic>
#include <string>

namespace lockstep {
namespace {
std::string& name_of_fault() {
  static std::string name;
  return name;
}

std::atomic<std::int64_t> met = 0;
}  // namespace

void plant_fault(std::string_view name) { name_of_fault() = name; }
std::string_view planted_fault() { return name_of_fault(); }

std::int64_t fault_points_met() { return met; }
bool note_fault_point_met() {
  ++met;
  return true;
}

}  // namespace lockstep
