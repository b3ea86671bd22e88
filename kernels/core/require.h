// A broken contract aborts in every build, with its place.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace lockstep {

inline void require(bool holds, const char* what,
                    std::source_location at = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: broken contract in %s: %s\n", at.file_name(),
               static_cast<unsigned>(at.line()), at.function_name(), what);
  std::abort();
}

}  // namespace lockstep
