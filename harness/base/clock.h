// When and where a report was made. Nothing is decided by either.
#pragma once

#include <string>

namespace lockstep {

std::string utc_now();    // ISO 8601: "2026-11-23T08:32:39Z".
std::string host_name();  // "" where the system does not say.

}  // namespace lockstep
