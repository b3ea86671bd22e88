// Changes calls at the device while a fault is planted there, and counts them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/device/call_interceptor.h"

namespace lockstep {

class FaultInjector : public CallInterceptor {
 public:
  virtual std::int64_t triggered() const = 0;  // Calls that it has changed.
};

// Returns the injector of this process's planted fault if it is an alias; null otherwise.
std::unique_ptr<FaultInjector> planted_alias();
// The same, or an injector for `fault` if it is a fault at the device. `pattern` gives the model's
// layers, which sites name by their kind.
std::unique_ptr<FaultInjector> injector_for(const std::string& pattern, std::string_view fault);

}  // namespace lockstep
