// One access to memory: its work, its place in the step, its operand and bytes, and the time of its
// thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/device/step_location.h"
#include "harness/access/boxes.h"
#include "kernels/core/operand.h"

namespace lockstep {

// The checker compares names of work and of parts of a step in every call. Nearly all differ in
// their first letter, which saves a call of the C library.
inline bool equal_names(const char* a, const char* b) {
  return a[0] == b[0] && std::strcmp(a, b) == 0;
}

// The work that made an access: an op, a copy, a fill or the host. `graph` and `launch` identify
// the replay that it was part of.
struct Work {
  const char* name = "";
  StepLocation place;
  std::int64_t bytes = 0;  // For a copy or fill.
  int graph = -1;
  int launch = -1;
};

// Comparisons of two accesses read only the members up to `mode`, so these lie together.
struct Touch {
  Box box;
  std::uint64_t time = 0;
  int thread = 0;
  int allocation = -1;
  Access mode = Access::in;
  int operand = 0;        // Its index among the operands of the op.
  const char* name = "";  // Its name in the op's struct.
  Work work;
};

inline bool reads(Access mode) { return mode == Access::in || mode == Access::accum; }
inline bool writes(Access mode) { return mode != Access::in; }

}  // namespace lockstep
