// How much longer than usual tests wait before they give up.
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep {

// The factor in the environment variable LOCKSTEP_TEST_PATIENCE, 1 without it: programs under a
// sanitizer take ten to thirty times as long.
inline int patience() {
  const char* factor = std::getenv("LOCKSTEP_TEST_PATIENCE");
  return factor ? std::stoi(factor) : 1;
}

}  // namespace lockstep
