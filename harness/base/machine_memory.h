// How much memory this machine can still give.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// The smaller of MemAvailable and the limits of the control groups that this process is in; where
// the kernel says nothing, as much as a number holds. `root` is a folder in the place of /, for
// tests.
struct MachineMemory {
  std::int64_t bytes = INT64_MAX;
  std::string source;  // "MemAvailable" or "the control group's limit".
};
MachineMemory machine_memory(const std::string& root = "");

}  // namespace lockstep
