// The two ways in which the collective calls of several ranks fail.
#pragma once

#include <stdexcept>

namespace lockstep {

// The ranks do not make the same call. Its judge is "collective".
class CollectiveMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown when a rank waits for one that will not come (exit status 4). The text names the waiting
// rank and its call.
class CollectiveHang : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
