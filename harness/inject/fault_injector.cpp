#include "harness/inject/fault_injector.h"

#include "harness/inject/alias_injector.h"
#include "harness/inject/mutator.h"
#include "kernels/core/fault.h"

namespace lockstep {

std::unique_ptr<FaultInjector> planted_alias() {
  const FaultAlias* const alias = fault_alias(planted_fault());
  return alias ? std::make_unique<AliasInjector>(*alias) : nullptr;
}

std::unique_ptr<FaultInjector> injector_for(const std::string& pattern, std::string_view fault) {
  if (auto alias = planted_alias()) return alias;
  if (const auto found = device_fault(fault))
    return std::make_unique<DeviceMutator>(pattern, *found);
  return nullptr;
}

}  // namespace lockstep
