#include "kernels/core/fault.h"

#include <string>

namespace lockstep {
namespace {
std::string& name_of_fault() {
  static std::string name;
  return name;
}
}  // namespace

void plant_fault(std::string_view name) { name_of_fault() = name; }
std::string_view planted_fault() { return name_of_fault(); }

}  // namespace lockstep
