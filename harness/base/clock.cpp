#include "harness/base/clock.h"

#include <unistd.h>

#include <array>
#include <ctime>

namespace lockstep {

std::string utc_now() {
  timespec now{};
  std::tm parts{};
  std::array<char, 32> text{};
  if (::clock_gettime(CLOCK_REALTIME, &now) != 0 || ::gmtime_r(&now.tv_sec, &parts) == nullptr) {
    return "";
  }
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace lockstep
