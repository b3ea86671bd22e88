#include "harness/inject/device_fault.h"

#include <algorithm>
#include <charconv>

#include "kernels/core/at.h"

namespace lockstep {

std::string_view to_text(DeviceOperator op) { return at(kDeviceOperators, op); }

std::string to_text(const DeviceFault& fault) {
  return std::string(to_text(fault.op)) + "/" + fault.site + "/" + std::to_string(fault.index);
}

std::optional<DeviceFault> device_fault(std::string_view text) {
  const std::size_t first = text.find('/'), last = text.rfind('/');
  if (first == std::string_view::npos || last <= first + 1) return std::nullopt;
  const auto op =
      std::find(kDeviceOperators.begin(), kDeviceOperators.end(), text.substr(0, first));
  const std::string_view number = text.substr(last + 1);
  std::int64_t index = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  const bool is_number = error == std::errc() && end == number.data() + number.size() && index >= 0;
  if (op == kDeviceOperators.end() || !is_number) return std::nullopt;
  return DeviceFault{static_cast<DeviceOperator>(op - kDeviceOperators.begin()),
                     std::string(text.substr(first + 1, last - first - 1)), index};
}

}  // namespace lockstep
