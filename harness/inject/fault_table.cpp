#include "harness/inject/fault_table.h"

namespace lockstep {
namespace {

std::vector<std::string> names_of(std::span<const FaultRow> rows) {
  std::vector<std::string> names;
  for (const FaultRow& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace

std::vector<std::string> kernel_faults() { return names_of(kernel_fault_rows()); }
std::vector<std::string> engine_faults() { return names_of(engine_fault_rows()); }

std::vector<std::string> sharding_faults() {
  std::vector<std::string> names;
  for (const FaultRow& row : engine_fault_rows()) {
    if (row.has(kNeedsShards)) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace lockstep
