// The ways in which the collective calls of several ranks fail.
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

// What came from another process is no frame of this run: its length, its number or its contents
// are none that an honest rank sends there. Nothing of it was used (exit status 3).
class BadFrame : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace lockstep
