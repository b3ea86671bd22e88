#pragma once

#include <cstdint>

#include "scenarios/scenario.h"

namespace lockstep {

// Rows of the expert buffer. Its size follows from the scenario alone: padded, every expert has its capacity; else the
// buffer has a row for every pair that can be kept, and the experts' rows lie one behind the other.
struct ExpertBuffer {
  explicit ExpertBuffer(const Scenario& scenario);
  std::int64_t rows;
  std::int32_t capacity;  // 0: dropless.
  bool padded;
};

}  // namespace lockstep
